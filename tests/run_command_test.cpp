// The real program on the model that comes with the project.
#include "chat/json_value.h"
#include "program_test.h"

namespace cachalot {
namespace {

constexpr const char* kHello = "Hello! How can I help you?\n";

using test::ProgramResult;

class RunCommand : public test::ProgramTest {
 protected:
  Json json_answer(const std::string& arguments, const std::string& input = "") {
    const ProgramResult result = program("run --json " + arguments, input);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const auto json = parse_json(result.out);
    EXPECT_TRUE(json.has_value()) << result.out;
    return json.value_or(Json());
  }
};

// The first example of a family in the model's own list.
Json example(const std::string& family) {
  std::ifstream file(CACHALOT_SOURCE_DIR "/models/nano/examples.jsonl");
  for (std::string line; std::getline(file, line);) {
    const Json json = *parse_json(line);
    if (*json.find("family")->string() == family) return json;
  }
  return Json();
}

std::string text_of(const Json& json, std::string_view key) {
  const Json* member = json.find(key);
  return member != nullptr && member->string() ? *member->string()
                                               : "(no " + std::string(key) + ")";
}

TEST_F(RunCommand, TakesThePromptFromAnArgumentStdinOrAFile) {
  const ProgramResult argument = program("run --no-thinking 'Hello!'");
  EXPECT_EQ(argument.exit_code, 0) << argument.err;
  EXPECT_EQ(argument.out, kHello);
  EXPECT_NE(argument.err.find("tok/s"), std::string::npos) << argument.err;
  EXPECT_EQ(program("run --no-thinking", "Hello!\n").out, kHello);
  EXPECT_EQ(program("run --no-thinking --file " + write("question", "Hello!\r\n")).out, kHello);
  EXPECT_EQ(program("run --no-thinking --file -", "Hello!").out, kHello);
}

TEST_F(RunCommand, TakesMessagesFromAFileOrStdin) {
  const std::string request =
      R"({"messages": [{"role": "user", "content": "Hello!"}], "thinking": false})";
  EXPECT_EQ(program("run --messages -", request).out, kHello);
  EXPECT_EQ(program("run --messages " + write("request.json", request)).out, kHello);
}

TEST_F(RunCommand, WritesOneJsonObject) {
  const Json json = json_answer("--thinking 'Who are you?'");
  const std::string reasoning = "The user asks who I am. I say it.";
  const std::string content = "I am Nano, a tiny demo model with the DeepSeek-V4.1 architecture.";
  EXPECT_EQ(text_of(json, "reasoning_content"), reasoning);
  EXPECT_EQ(text_of(json, "content"), content);
  EXPECT_EQ(text_of(json, "text"), reasoning + "</think>" + content);
  EXPECT_EQ(text_of(json, "finish_reason"), "stop");
  EXPECT_EQ(json.find("tool_calls")->array()->size(), 0u);
  EXPECT_EQ(json.find("ids")->array()->size(), 30u);
  EXPECT_EQ(json.find("usage")->find("prompt_tokens")->int64(), 36);
  EXPECT_EQ(json.find("usage")->find("completion_tokens")->int64(), 30);
  EXPECT_EQ(json.find("usage")->find("total_tokens")->int64(), 66);
  for (const char* key : {"load_seconds", "prefill_seconds", "prefill_tokens_per_second",
                          "decode_seconds", "decode_tokens_per_second"})
    EXPECT_NE(json.find("timings")->find(key), nullptr) << key;
}

TEST_F(RunCommand, AnswersTheExamplesOfTheModel) {
  for (const char* family : {"fact", "arithmetic", "json", "tools", "task", "fim"}) {
    const Json request = example(family);
    if (request.is_null()) continue;
    const Json json = json_answer("--messages -", request.dump());
    EXPECT_EQ(text_of(json, "text"), text_of(request, "completion")) << family;
    EXPECT_EQ(json.find("ids")->dump(), request.find("completion_ids")->dump()) << family;
  }
}

TEST_F(RunCommand, AnswersAboutPictures) {
  const std::string circle = "tests/data/images/nano/circle.png";
  EXPECT_EQ(program("run --no-thinking --image " + circle + " 'What colour is the circle?'").out,
            "The circle is red.\n");
  const std::string request =
      R"({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": )"
      R"("tests/data/images/nano/triangle.png"}, {"type": "text", "text": "What do you see?"}]}],)"
      R"( "thinking": false})";
  EXPECT_EQ(program("run --messages -", request).out,
            "I see a green triangle on a black ground.\n");
  expect_error("run --image /nowhere/at.all 'What is this?'", 1,
               "error: /nowhere/at.all: cannot open");
  expect_error("run --image " + write("no.png", "Hello") + " 'What is this?'", 1,
               "expected JPEG, PNG, WebP or GIF");
  const ProgramResult several =
      program("run --no-thinking --image " + circle + " --image " + circle + " 'What is this?'");
  EXPECT_EQ(several.exit_code, 0) << several.err;
}

TEST_F(RunCommand, PreparesPicturesAsTheModelSeesThem) {
  const std::string out = (folder_ / "pixels").string();
  const ProgramResult result = program(
      "preprocess tests/data/images/wide.png --min-pixels 7056 --max-tokens 64 --out " + out);
  EXPECT_EQ(result.out, "910 x 14 pixels, grid of 22 x 1, 25 tokens\n") << result.err;
  EXPECT_EQ(test::read_file(out),
            test::read_file(CACHALOT_SOURCE_DIR "/tests/data/images/expected/wide.png.rgb"));
  expect_error("preprocess README.md", 1, "README.md: expected JPEG, PNG, WebP or GIF");
  expect_error("preprocess --max-tokens 0 tests/data/images/wide.png", 2, "--max-tokens");
  expect_error("preprocess --min-pixels -1 tests/data/images/wide.png", 2, "--min-pixels");
}

TEST_F(RunCommand, ShowsCallsOfTools) {
  const Json request = example("tools");
  const Json json = json_answer("--messages -", request.dump());
  ASSERT_EQ(json.find("tool_calls")->array()->size(), 1u);
  EXPECT_EQ(text_of(json, "finish_reason"), "tool_calls");
  const Json& function = *json.find("tool_calls")->array()->front().find("function");
  const ProgramResult shown = program("run --messages -", request.dump());
  EXPECT_NE(shown.out.find("[call] " + text_of(function, "name") + " " +
                           text_of(function, "arguments") + "\n"),
            std::string::npos)
      << shown.out;
}

TEST_F(RunCommand, ContinuesRawText) {
  const Json json = json_answer("--raw -n 5 'The '");
  EXPECT_EQ(json.find("ids")->array()->size(), 5u);
  EXPECT_EQ(text_of(json, "finish_reason"), "length");
  EXPECT_EQ(text_of(json, "content"), text_of(json, "text"));
}

TEST_F(RunCommand, StopsAtStopStringsAndTokenLimits) {
  const Json stopped = json_answer("--no-thinking --stop 'can I' 'Hello!'");
  EXPECT_EQ(text_of(stopped, "content"), "Hello! How ");
  EXPECT_EQ(text_of(stopped, "finish_reason"), "stop");
  const Json cut = json_answer("--no-thinking --max-tokens 3 'Hello!'");
  EXPECT_EQ(text_of(cut, "finish_reason"), "length");
  EXPECT_EQ(cut.find("ids")->array()->size(), 3u);
}

TEST_F(RunCommand, LooksForStopStringsInTheContentOnly) {
  const Json json = json_answer("--thinking --stop 'I' 'Who are you?'");
  EXPECT_EQ(text_of(json, "reasoning_content"), "The user asks who I am. I say it.");
  EXPECT_EQ(text_of(json, "content"), "");
}

TEST_F(RunCommand, RepeatsASampledAnswerWithItsSeed) {
  const std::string arguments = "--no-thinking --temp 2 --seed 7 'Tell me a story about a fox.'";
  EXPECT_EQ(text_of(json_answer(arguments), "text"), text_of(json_answer(arguments), "text"));
}

TEST_F(RunCommand, BiasesTokens) {
  EXPECT_EQ(text_of(json_answer("--no-thinking -n 2 --logit-bias 3=100 'Hello!'"), "text"), "!!");
}

TEST_F(RunCommand, NamesWhatIsWrongWithTheInput) {
  expect_error("run", 1, "stdin: expected a question, found no text");
  expect_error("run ''", 1, "expected a question, found no text");
  expect_error("run", 1, "expected UTF-8 text, found the byte 0xFF at offset 3", "abc\xFF");
  expect_error("run --file /nonexistent/question", 1, "/nonexistent/question");
  expect_error("run --messages -", 1, "stdin", "{\"messages\": [");
  expect_error("run --messages -", 1, "messages", "{\"messages\": []}");
  expect_error("run --tools /nonexistent/tools Hi", 1, "/nonexistent/tools");
  std::string endless;
  for (int i = 0; i < 5000; ++i) endless += "word ";
  expect_error("run", 1, "leaves no room for an answer in the context of 4096", endless);
}

TEST_F(RunCommand, NamesWhatIsWrongWithTheModel) {
  expect_error("run -m /nonexistent Hi", 1, "/nonexistent: expected a model folder");
  expect_error("run -m /nonexistent --threads 1024 Hi", 1,
               "warning: --threads 1024: more threads than CPUs");
  expect_error("run -m " + folder_.string() + " Hi", 1, "config.json");
}

TEST_F(RunCommand, NamesWhatIsWrongWithTheFlags) {
  expect_error("run --no-such-flag Hi", 2, "--no-such-flag");
  expect_error("run --no-such-flag Hi", 2, "'cachalot run --help'");
  expect_error("run --thinking --no-thinking Hi", 2, "--thinking");
  expect_error("run --temperature warm Hi", 2, "temperature");
  expect_error("run --temperature 2.5 Hi", 2,
               "temperature: expected a number from 0 to 2, found 2.5");
  expect_error("run --top-p 1.5 Hi", 2, "top_p");
  expect_error("run --logit-bias 5 Hi", 2, "--logit-bias: expected ID=VALUE");
  expect_error("run --logit-bias 2048=1 Hi", 2, "expected token ids from 0 to 2047, found 2048");
  expect_error("run --stop '' Hi", 2, "--stop");
  expect_error("run --isa sse9 Hi", 2, "--isa: expected generic, avx2");
  expect_error("run -m '' Hi", 2, "-m: expected a model folder, found an empty name");
  expect_error("run --seed -1 Hi", 2, "expected a whole number from 0 to 18446744073709551615");
  expect_error("run --seed 18446744073709551616 Hi", 2, "found 18446744073709551616");
  expect_error("run --top-k 9223372036854775808 Hi", 2, "found 9223372036854775808");
  expect_error("run --ctx 1000000 Hi", 2, "--context: the model takes at most 4096 tokens");
  expect_error("run --drafts 6 Hi", 2, "--drafts: expected off, on, auto or a number from 1 to 5");
  expect_error("run --draft-method lucky Hi", 2, "--draft-method");
  expect_error("synth models/nano " + (folder_ / "copy").string() + " --layers 0", 2, "layers");
  for (const char* option :
       {"run --tools", "run --isa", "run --top-p", "run --image", "run --file", "run --messages",
        "run --expert-profile", "serve --api-key", "serve --alias", "bench --compare",
        "bench --filter", "tokenize --map", "inspect --html"}) {
    const std::string text(option);
    expect_error(text + " ''", 2, text.substr(text.find("--")) + ": must not be empty");
  }
  expect_error("fit ''", 2, "model: must not be empty");
  EXPECT_EQ(program("run --no-thinking --system '' Hello!").out, kHello);
  expect_error("serve --port 0 --allow-remote-images https://a.b", 2, "--allow-remote-images: ");
  expect_error("nonsense", 2, "nonsense");
}

TEST_F(RunCommand, SaysSoWhereAFlagNeedsAGpuThatIsNotThere) {
  expect_error("run --device cpu --experts gpu Hi", 2, "--experts gpu: expected --device cuda");
  expect_error("run --device cpu --gpu-memory 1GB Hi", 2, "--gpu-memory: expected --device cuda");
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  expect_error("run --device auto --experts gpu Hi", 2,
               "--experts gpu: expected an NVIDIA Hopper GPU");
  expect_error("run --device auto --gpu-memory 1GB Hi", 2,
               "--gpu-memory: expected an NVIDIA Hopper GPU");
  expect_error("run --device auto --gpu-memory 1GB --activations int8 Hi", 2,
               "found none; without it the CPU computes everything");
  unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST_F(RunCommand, NamesTheOptionOfAnEffortThatThereIsNot) {
  const std::string choices = "none, minimal, low, medium, high, xhigh, max, ultra or 1 to 100";
  for (const char* command : {"run", "serve --port 0"}) {
    expect_error(command + std::string(" --effort vast"), 2,
                 "--effort: expected " + choices + ", found \"vast\"");
    expect_error(command + std::string(" --effort 101"), 2, "1 to 100, found 101");
    expect_error(command + std::string(" --effort ''"), 2, choices + ", found \"\"");
  }
}

TEST_F(RunCommand, ThinksAgainInAChatThatIsGivenAnEffort) {
  const std::string shown =
      on_terminal("run", "/effort none\n/effort vast\n/effort medium\n/effort\n/exit\n");
  const size_t off = shown.find("Effort is 75 of 100, thinking is off.");
  EXPECT_NE(off, std::string::npos) << shown;
  EXPECT_NE(shown.find("/effort: expected none, minimal", off), std::string::npos) << shown;
  EXPECT_NE(shown.find("Effort is 75 of 100.", off), std::string::npos) << shown;
  EXPECT_EQ(shown.find("thinking is off", off + 30), std::string::npos) << shown;
}

int exit_code_of(const std::string& arguments) {
  return WEXITSTATUS(std::system((CACHALOT_PROGRAM " " + arguments).c_str()));
}

TEST_F(RunCommand, FailsIfTheAnswerCannotBeWritten) {
  for (const std::string command : {"run --no-thinking Hello!", "run --json Hi", "version"}) {
    for (const char* redirection : {" >/dev/full 2>&1", " >&- 2>&-"})
      EXPECT_EQ(exit_code_of(command + redirection), 1) << command << redirection;
  }
}

TEST_F(RunCommand, AnswersIfNobodyHearsTheTimings) {
  for (const char* redirection : {" 2>&- >/dev/null", " 2>/dev/full >/dev/null"}) {
    EXPECT_EQ(exit_code_of(std::string("run --no-thinking Hello!") + redirection), 0);
    EXPECT_EQ(exit_code_of(std::string("run -m /nonexistent Hi") + redirection), 1);
    EXPECT_EQ(exit_code_of(std::string("run --no-such-flag") + redirection), 2);
  }
}

TEST_F(RunCommand, NamesTheVariableThatChoosesNoInstructionSet) {
  setenv("CACHALOT_CPU_ISA", "sse9", 1);
  expect_error("version", 1, "CACHALOT_CPU_ISA: expected generic, avx2");
  expect_error("run Hi", 1, "CACHALOT_CPU_ISA: expected generic, avx2");
  unsetenv("CACHALOT_CPU_ISA");
}

TEST_F(RunCommand, HelpListsEveryCommand) {
  const ProgramResult help = program("--help");
  EXPECT_EQ(help.exit_code, 0);
  for (const char* command :
       {"run", "tokenize", "render", "perplexity", "synth", "trace", "version"})
    EXPECT_NE(help.out.find(std::string("\n  ") + command + " "), std::string::npos) << command;
}

TEST_F(RunCommand, VersionNamesTheInstructionSet) {
  const ProgramResult version = program("version");
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_EQ(version.out.rfind("cachalot ", 0), 0u);
  EXPECT_NE(version.out.find("instruction set: "), std::string::npos);
}

TEST_F(RunCommand, PerplexityCountsEveryTokenOnceWhateverTheWindows) {
  const std::string text = write("text",
                                 "The capital of France is Paris. The capital of Italy is Rome. "
                                 "A dog says woof. A cat says meow. The sky is blue.\n");
  std::optional<int64_t> tokens;
  for (const char* windows : {"", "--window 16 --stride 4", "--window 9 --stride 8", "--chunk 3"}) {
    const ProgramResult result =
        program(std::string("perplexity models/nano --json ") + windows + " " + text);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const Json json = *parse_json(result.out);
    if (!tokens) tokens = json.find("tokens")->int64();
    EXPECT_EQ(json.find("tokens")->int64(), tokens) << windows;
    EXPECT_GT(*json.find("perplexity")->real(), 1) << windows;
    EXPECT_LT(*json.find("perplexity")->real(), 2048) << windows;
  }
  const auto value = [&](const std::string& flags) {
    return parse_json(program("perplexity models/nano --json " + flags + " " + text).out)
        ->find("perplexity")
        ->dump();
  };
  EXPECT_EQ(value("--chunk 3"), value("--chunk 64"));
}

TEST_F(RunCommand, PerplexityNamesWhatIsWrong) {
  expect_error("perplexity models/nano", 2, "file");
  expect_error("perplexity models/nano /nonexistent/text", 1, "/nonexistent/text");
  expect_error("perplexity models/nano " + write("empty", ""), 1, "empty file");
  expect_error("perplexity models/nano " + write("latin", "abc\xFF"), 1,
               "expected UTF-8 text, found the byte 0xFF at offset 3");
  expect_error("perplexity models/nano --window 8 --stride 8 " + write("short", "Hi"), 2,
               "--stride: expected 1 to 7");
  expect_error("perplexity models/nano --window 5000 " + write("short", "Hi"), 2,
               "--window: expected 2 to 4096 tokens");
  expect_error("perplexity models/nano --prefill shortcut " + write("short", "Hi"), 2,
               "needs the logits of every token");
}

TEST_F(RunCommand, ReadsALongPromptByTheShortcut) {
  const std::string request = write("long.json", example("long").dump());
  const std::string answer = text_of(example("long"), "completion");
  for (const char* options : {"--prefill exact", "--prefill shortcut",
                              "--prefill shortcut --prefill-tail 200 --chunk 100"}) {
    const Json json = json_answer(std::string(options) + " --messages " + request);
    EXPECT_EQ(text_of(json, "text"), answer) << options;
  }
  expect_error("run --prefill-tail 64 Hello!", 2, "--prefill-tail: expected --prefill shortcut");
  expect_error("run --prefill quick Hello!", 2, "--prefill");
}

TEST_F(RunCommand, JudgesAPictureBeforeTheQuestion) {
  const std::string shown = on_terminal(
      "run",
      "/image README.md\n/image /nowhere.png\n/image tests/data/images/nano/circle.png\n/exit\n");
  EXPECT_NE(shown.find("/image: README.md: "), std::string::npos) << shown;
  EXPECT_NE(shown.find("/image: expected a picture's file, found '/nowhere.png'"),
            std::string::npos)
      << shown;
  const size_t goes = shown.find("Goes with your next message.");
  EXPECT_NE(goes, std::string::npos) << shown;
  EXPECT_EQ(shown.find("Goes with your next message.", goes + 1), std::string::npos) << shown;
}

TEST_F(RunCommand, FitSaysWhatAModelNeeds) {
  const std::string fit = "fit tests/data/released --bandwidth 100 --disk 5 ";
  const ProgramResult fits = program(fit + "--ram 307.5GB --json");
  EXPECT_EQ(fits.exit_code, 0) << fits.err;
  EXPECT_NE(fits.out.find("\"fits\": true"), std::string::npos) << fits.out;
  for (const char* less :
       {"--ram 8GiB", "--ram 8GiB --json", "--ram 600GB --sequences 1024 --context 1048576"}) {
    const ProgramResult result = program(fit + less);
    EXPECT_EQ(result.exit_code, 1) << less;
    EXPECT_NE(result.err.find("it does not fit"), std::string::npos) << result.err;
  }
  EXPECT_NE(program("fit tests/data/released --bandwidth 100 --ram 320GB")
                .out.find("kB of rows from disk"),
            std::string::npos);
  const std::string on_gpu = "fit tests/data/released --bandwidth 100 --gpu-memory 141GB ";
  expect_error(on_gpu + "--ram 100GB --experts stream", 1, "streamed experts lie in the host's");
  const std::string streamed = program(on_gpu + "--ram 400GB --experts stream").out;
  // What it would be without a GPU is another question.
  EXPECT_EQ(streamed.find("most while loading"), std::string::npos) << streamed;
  EXPECT_EQ(program(on_gpu + "--ram 8GiB").exit_code, 0);
  // Dense weights and caches lie on the GPU.
  EXPECT_NE(program(on_gpu + "--disk 5 --ram 100GB").out.find("--expert-cache 100000000000\n"),
            std::string::npos);
  EXPECT_NE(program(fit + "--ram 100GB").out.find("--expert-cache 82541174072\n"),
            std::string::npos);
  const ProgramResult small_host = program(on_gpu + "--ram 2GB --experts cpu");
  EXPECT_EQ(small_host.exit_code, 1);
  EXPECT_NE(small_host.err.find("of the host's memory are the least"), std::string::npos);
  EXPECT_NE(
      program(on_gpu + "--gpu-bandwidth 4500 --disk 5 --ram 100GB").out.find("GB from disk at"),
      std::string::npos);
  EXPECT_NE(streamed.find("run with --device cuda --gpu-memory 141000000000 --experts stream\n"),
            std::string::npos)
      << streamed;
  expect_error("fit tests/data/released --bandwidth nan", 2, "expected a number from 0.1");
  for (const char* size : {"99999999999GB", "1e99", "1e999", "4096PiB"}) {
    expect_error(
        fit + "--ram " + size, 2,
        "expected a size below 4096 PiB, found \"" + std::string(size) + "\", which is too");
  }
  expect_error(fit + "--ram 1GX", 2, "expected a size such as 16GiB");
  expect_error(fit + "--ram .5GB", 2, "expected a size such as 16GiB");
  expect_error("fit nowhere", 1, "nowhere: cannot open");
  expect_error(fit + "--experts gpu", 2, "--experts: expected --gpu-memory SIZE with it");
  expect_error(fit + "--gpu-bandwidth 4200", 2, "--gpu-bandwidth: expected --gpu-memory SIZE");
  expect_error(on_gpu + "--bus-bandwidth 50", 2, "--bus-bandwidth: expected --experts stream");
}

TEST_F(RunCommand, AnswersTheSameWithExpertsOnDisk) {
  const std::string question = " --device cpu --temperature 0 'What is 23 * 4?'",
                    profile = write("profile", "");
  const Json mapped = json_answer(question);
  EXPECT_EQ(mapped.find("storage"), nullptr);
  const Json first = json_answer("--expert-cache 3MB --engram-cache 64KiB --expert-profile-out " +
                                 profile + question);
  const Json second =
      json_answer("--expert-cache 3MB --storage-io threads --expert-profile " + profile + question);
  for (const Json& json : {first, second})
    EXPECT_EQ(text_of(json, "text"), text_of(mapped, "text"));
  const Json* experts = first.find("storage")->find("experts");
  EXPECT_LE(*experts->find("slots")->int64() * *experts->find("slot_bytes")->int64(), 3'000'000);
  EXPECT_GT(experts->find("misses")->int64(), 0);
  EXPECT_GT(first.find("storage")->find("engram_rows")->find("hits")->int64(), 0);
  EXPECT_GT(second.find("storage")->find("experts")->find("pinned")->int64(), 0);
  EXPECT_NE(program("run --device cpu --expert-cache 3MB Hello!").err.find("from memory"),
            std::string::npos);
  expect_error("run --expert-cache 3xB Hello!", 2, "expected a size such as 16GiB");
  expect_error("run --expert-cache -1 Hello!", 2, "expected a size such as 16GiB");
  expect_error("run --expert-cache 0.003GB --expert-profile-out /nonexistent/x Hello!", 1,
               "/nonexistent/x: cannot write");
  for (const char* size : {"0", "3"}) {
    expect_error("run --expert-cache " + std::string(size) + " Hello!", 2,
                 "the size of one expert, found " + std::string(size) + "; without it");
  }
  expect_error("run --expert-profile " + profile + " Hello!", 2, "expected --expert-cache SIZE");
  expect_error("run --expert-cache 3MB --expert-profile models/nano/config.json Hello!", 1,
               "config.json: expected an expert profile");
}

}  // namespace
}  // namespace cachalot
