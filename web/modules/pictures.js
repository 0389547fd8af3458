// Pictures of a message: {url, name}, the file as a data URL. The server decides what it can read;
// what is refused here is what it certainly would refuse.

import {plural} from './words.js';

const megabyte = 1024 * 1024;
// A request carries all pictures of the conversation, a third longer for base64, in 48 MiB.
export const limits = {file: 10 * megabyte, message: 8, conversation: 32 * megabyte};
export const acceptedTypes = 'image/png,image/jpeg,image/webp,image/gif';

const dataUrl = /^data:image\/(?:png|jpeg|webp|gif);base64,[A-Za-z0-9+/]+={0,2}$/;

// What an imported file says is a picture.
export function isPicture(value) {
  return typeof value?.url === 'string' && typeof value.name === 'string' && dataUrl.test(value.url);
}

export function bytesOf(pictures) {
  return pictures.reduce((sum, {url}) => sum + (url.length - url.indexOf(',') - 1) * 3 / 4, 0);
}

// The type by what the file begins with, as names and types are often wrong; null: none of these.
export function typeOf(bytes) {
  const text = String.fromCharCode(...bytes.slice(0, 12));
  if (text.startsWith('\x89PNG\r\n\x1a\n')) return 'image/png';
  if (text.startsWith('\xff\xd8\xff')) return 'image/jpeg';
  if (text.startsWith('GIF87a') || text.startsWith('GIF89a')) return 'image/gif';
  if (text.startsWith('RIFF') && text.slice(8) === 'WEBP') return 'image/webp';
  return null;
}

function readAsUrl(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(blob);
  });
}

// Throws Error with words for the user.
async function readPicture(file, name) {
  if (file.size > limits.file) {
    throw new Error(`“${name}” is larger than ${limits.file / megabyte} MB.`);
  }
  let type, url;
  try {
    type = typeOf(new Uint8Array(await file.slice(0, 12).arrayBuffer()));
    if (type) url = await readAsUrl(new Blob([file], {type}));
  } catch {
    throw new Error(`“${name}” cannot be read.`);
  }
  if (!type) throw new Error(`“${name}” is not a PNG, JPEG, WebP or GIF picture.`);
  const image = new Image();
  image.src = url;
  await image.decode().catch(() => {
    throw new Error(`“${name}” is damaged: it cannot be shown.`);
  });
  return {url, name};
}

// `room`: how many more, and how many bytes more. {pictures, problems}: what could be taken, and
// words about the rest.
export async function readPictures(files, room) {
  const pictures = [], problems = [];
  let bytes = room.bytes;
  for (const file of files) {
    if (pictures.length === room.count) {
      problems.push(`A message takes ${plural(limits.message, 'picture')}; the rest is left out.`);
      break;
    }
    try {
      const picture = await readPicture(file, file.name || 'picture');
      if (bytesOf([picture]) > bytes) {
        throw new Error(`“${picture.name}” is left out: the pictures of one conversation may have ` +
                        `${limits.conversation / megabyte} MB together.`);
      }
      bytes -= bytesOf([picture]);
      pictures.push(picture);
    } catch (error) {
      problems.push(error.message);
    }
  }
  return {pictures, problems};
}
