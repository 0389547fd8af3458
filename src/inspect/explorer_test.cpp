#include "inspect/explorer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "base/mapped_file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/damaged_checkpoint.h"
#include "inspect/explorer_json.h"
#include "inspect/survey.h"
#include "inspect/tree_text.h"

namespace cachalot {
namespace {

const std::filesystem::path kSource = CACHALOT_SOURCE_DIR;

Explorer explored(const std::filesystem::path& path, const ExplorerOptions& options = {}) {
  auto explorer = explore(path, options);
  if (!explorer) {
    ADD_FAILURE() << explorer.error().message;
    return {};
  }
  return std::move(*explorer);
}

const Explorer& released() {
  static const Explorer explorer = explored(kSource / "tests/data/released/config.json");
  return explorer;
}

template <class Visit>
void visit_nodes(const Node& node, Visit&& visit) {
  visit(node);
  for (const Node& child : node.children) visit_nodes(child, visit);
}

// Over the nodes whose ids begin and end so.
PartTotal sum(const Explorer& explorer, std::string_view begin, std::string_view end) {
  PartTotal total;
  visit_nodes(explorer.root, [&](const Node& node) {
    if (!node.id.starts_with(begin) || !node.id.ends_with(end)) return;
    total.parameters += node.parameters_total;
    total.bytes += node.bytes_total;
    total.tensors += node.tensors_total;
  });
  return total;
}

const Node& node_at(const Explorer& explorer, std::string_view id) {
  const auto node = find_node(explorer, id);
  EXPECT_TRUE(node) << node.error().message;
  return node ? **node : explorer.root;
}

std::vector<std::string> symbols(const std::vector<Dimension>& shape) {
  std::vector<std::string> texts;
  for (const Dimension& d : shape)
    texts.push_back(d.symbol.empty() ? std::to_string(d.number) : d.symbol);
  return texts;
}

std::vector<std::string> names(const std::vector<Dimension>& shape) {
  std::vector<std::string> texts;
  for (const Dimension& dimension : shape) texts.push_back(dimension.name);
  return texts;
}

PartTotal account(const Explorer& explorer, std::string_view name) {
  for (const PartTotal& total : explorer.accounts) {
    if (total.name == name) return total;
  }
  ADD_FAILURE() << name;
  return {};
}

// Numbers: spec, checkpoint, introduction and 4.
TEST(Explorer, CountsTheReleaseToTheUnit) {
  const Explorer& explorer = released();
  EXPECT_EQ(explorer.total.parameters, 763'205'315'794);
  EXPECT_EQ(explorer.total.bytes, 510'286'023'000);
  EXPECT_EQ(explorer.total.tensors, 96'085);
  EXPECT_TRUE(explorer.mismatches.empty());

  EXPECT_EQ(account(explorer, "backbone").parameters,
            543'581'798'400 + 1'415'577'600 + 5'064'696'320 + 409'600 + 61'868'544 + 78'673'920 +
                39'323'760 + 2 * 661'913'600 + 5'120);
  EXPECT_EQ(account(explorer, "engram tables").parameters, 196'613'849'600);
  EXPECT_EQ(account(explorer, "engram tables").bytes, 202'758'032'400);
  EXPECT_EQ(account(explorer, "engram projections").parameters, 314'654'720);
  EXPECT_EQ(account(explorer, "engram projections").bytes, 315'043'840);
  EXPECT_EQ(account(explorer, "DSpark").parameters, 13'589'544'960 + 635'817'570);
  EXPECT_EQ(account(explorer, "DSpark").bytes, 7'219'445'760 + 713'428'872);
  EXPECT_EQ(account(explorer, "DSpark").tensors, 2'401);
  EXPECT_EQ(account(explorer, "vision").parameters, 485'268'480);
  EXPECT_EQ(account(explorer, "vision").bytes, 970'536'960);
}

// Numbers: spec, checkpoint, 4.
TEST(Explorer, CountsThePartsOfTheRelease) {
  const Explorer& explorer = released();
  const auto expect = [&](std::string_view begin, std::string_view end, int64_t parameters,
                          int64_t bytes) {
    const PartTotal total = sum(explorer, begin, end);
    EXPECT_EQ(total.parameters, parameters) << begin << " " << end;
    EXPECT_EQ(total.bytes, bytes) << begin << " " << end;
  };
  expect("backbone/", "/mixture/routed", 543'581'798'400, 288'777'830'400);
  expect("backbone/", "/mixture/shared", 1'415'577'600, 1'416'960'000);
  expect("backbone/", "/router", 78'673'920, 157'409'280);
  expect("backbone/", "/read-out/head", 661'913'600, 1'323'827'200);
  expect("backbone/", "/read-out/norm", 5'120, 10'240);
  expect("backbone/embedding", "", 661'913'600, 1'323'827'200);
  // Hyper-connections and the norms they feed.
  expect("backbone/", "/collapse", 39'323'760 + 409'600, 157'295'040 + 819'200);
  const PartTotal compressor = sum(explorer, "backbone/", "/compressor");
  const PartTotal indexer = sum(explorer, "backbone/", "/indexer");
  const PartTotal head_weights = sum(explorer, "backbone/", "/index-head-weights");
  EXPECT_EQ(compressor.bytes + indexer.bytes + head_weights.bytes, 81'835'008);
  EXPECT_EQ(compressor.parameters + indexer.parameters + head_weights.parameters, 61'868'544);
  expect("drafts/", "/mixture/routed", 13'589'544'960, 7'219'445'760);
  EXPECT_EQ(sum(explorer, "drafts/windows/main", "").bytes, 78'730'240);
  EXPECT_EQ(sum(explorer, "drafts/proposal/chain", "").bytes, 132'382'720);
  EXPECT_EQ(sum(explorer, "drafts/", "/confidence").bytes, 10'752);
}

TEST(Explorer, ReadsBothFormsOfTheConfigurationAlike) {
  const Explorer flat = explored(kSource / "tests/data/released/inference_config.json");
  ASSERT_EQ(flat.tensors.size(), released().tensors.size());
  EXPECT_EQ(node_json(flat, flat.root), node_json(released(), released().root));
}

TEST(Explorer, FindsTheOutputProjectionOfAReusingLayer) {
  const Node& node = node_at(released(), "backbone/groups-2x6/reusing/attention/output/projection");
  EXPECT_EQ(node.parameters, 41'943'040);
  EXPECT_EQ(node.parameters_total, 419'430'400);
  ASSERT_EQ(node.terms.size(), 2u);
  EXPECT_EQ(node.terms[0].number, 2);
  EXPECT_EQ(node.terms[0].what, "groups");
  EXPECT_EQ(node.terms[1].number, 5);
  EXPECT_EQ(node.terms[1].what, "layers");
  EXPECT_EQ(node.layers, (std::vector<int64_t>{3, 4, 5, 6, 7, 9, 10, 11, 12, 13}));
  ASSERT_EQ(node.inputs.size(), 1u);
  EXPECT_EQ(symbols(node.inputs[0].shape), (std::vector<std::string>{"B", "T", "8192"}));
  EXPECT_EQ(names(node.inputs[0].shape),
            (std::vector<std::string>{"B", "T", "o_groups * o_lora_rank"}));
  ASSERT_EQ(node.outputs.size(), 1u);
  EXPECT_EQ(symbols(node.outputs[0].shape), (std::vector<std::string>{"B", "T", "5120"}));
  EXPECT_EQ(node.operation, "linear");
  EXPECT_FALSE(node.bias);
  ASSERT_EQ(node.weights.size(), 2u);
  EXPECT_EQ(node.weights[0].pattern, "layers.{layer}.attn.wo_b.weight");
  EXPECT_EQ(node.weights[0].orientation, "[out, in]");
  // A token's work and what it reads: 2 operations per weight, E4M3 codes and a scale per tile.
  EXPECT_EQ(node.decode.flops, 2 * 41'943'040);
  EXPECT_EQ(node.decode.bytes, 41'943'040 + 160 * 256 + 2 * 8192 + 2 * 5120);
}

TEST(Explorer, DrawsTheHandOffsOfTheRelease) {
  std::map<std::pair<std::string, int64_t>, HandOff> hand_offs;
  for (const HandOff& one : released().hand_offs) hand_offs[{one.kind, one.source}] = one;
  EXPECT_EQ(hand_offs.size(), 4u + 4u + 8u + 1u);
  EXPECT_EQ((hand_offs[{"compressed_kv", 2}].consumers), (std::vector<int64_t>{3, 4, 5, 6, 7}));
  EXPECT_EQ((hand_offs[{"compressed_kv", 20}].consumers.size()), 19u);
  EXPECT_EQ((hand_offs[{"index_keys", 20}].consumers), (std::vector<int64_t>{24, 28, 32, 36}));
  EXPECT_EQ((hand_offs[{"candidates", 20}].consumers), (std::vector<int64_t>{24, 28, 32, 36}));
  EXPECT_EQ((hand_offs[{"picks", 36}].consumers), (std::vector<int64_t>{37, 38, 39}));
  // Spec, model, 2.3: 288 and 68 bytes a row, one row per two tokens below layer 20.
  EXPECT_EQ((hand_offs[{"compressed_kv", 2}].bytes_per_token), 144);
  EXPECT_EQ((hand_offs[{"index_keys", 20}].bytes_per_token), 68);
  EXPECT_EQ(node_at(released(), "backbone").cache_bytes_per_token, 890 + 4);
}

std::vector<std::string> fields(const std::vector<NodeOperand>& operands) {
  std::vector<std::string> result;
  for (const NodeOperand& operand : operands) result.push_back(operand.name);
  return result;
}

TEST(Explorer, TellsWhatGoesIntoAPartAndWhatComesOut) {
  const Node& backbone = node_at(released(), "backbone");
  EXPECT_EQ(fields(backbone.inputs), (std::vector<std::string>{"ids"}));
  // What looks for the best token reads the logits, and so does the caller.
  const std::vector<std::string> results = fields(backbone.outputs);
  ASSERT_GE(results.size(), 2u);
  EXPECT_EQ(results[results.size() - 2], "logits");
  EXPECT_EQ(results.back(), "best");
  const Node& group = node_at(released(), "backbone/groups-2x6");
  EXPECT_EQ(fields(group.inputs), (std::vector<std::string>{"stream", "pre_in"}));
  const Node& attention = node_at(released(), "backbone/groups-2x6/reusing/attention");
  EXPECT_EQ(fields(attention.inputs), (std::vector<std::string>{"stream", "pre_in", "chosen"}));
  EXPECT_EQ(names(attention.inputs[2].shape), (std::vector<std::string>{"B", "T", "index_topk"}));
  const Node& chain = node_at(released(), "drafts/proposal/chain");
  EXPECT_EQ(names(chain.outputs[0].shape),
            (std::vector<std::string>{"B", "dspark_block_size + 1"}));
  const Node& see = node_at(released(), "vision");
  EXPECT_EQ(symbols(see.outputs.back().shape), (std::vector<std::string>{"patches / 9", "5120"}));
}

std::string main_of(const Node& node) {
  std::string found;
  for (const NodeOperand& output : node.outputs) {
    if (output.main) found += (found.empty() ? "" : " and ") + output.name;
  }
  return found;
}

TEST(Explorer, MarksTheOneOutputThatFlowsOn) {
  const std::pair<const char*, const char*> expected[] = {
      {"backbone", "logits"},
      {"backbone/groups-2x6", "stream"},
      {"backbone/groups-2x6/source", "stream"},
      {"backbone/groups-2x6/source/attention/indexer", "chosen"},
      {"backbone/groups-2x6/source/attention/collapse", "x"},
      {"backbone/embedding", "stream"},
      {"drafts", "drafts"},
      {"drafts/proposal/chain", "drafts"},
      {"vision", "y"},
      {"vision/marks", "rows"},
      {"backbone/groups-2x6/reusing/experts/mixture/routed", "y"}};
  for (const auto& [id, name] : expected) {
    EXPECT_EQ(main_of(node_at(released(), id)), name) << id;
  }
  visit_nodes(released().root, [](const Node& node) {
    if (!node.outputs.empty()) {
      EXPECT_EQ(main_of(node).find(" and "), std::string::npos) << node.id;
    }
  });
}

TEST(Explorer, HandsCompressedEntriesOnFromGroups) {
  const auto hands_on = [](std::string_view id, std::string_view field) {
    const auto outputs = fields(node_at(released(), id).outputs);
    return std::ranges::find(outputs, field) != outputs.end();
  };
  EXPECT_TRUE(hands_on("backbone/groups-2x6/source", "latents"));
  EXPECT_FALSE(hands_on("backbone/groups-2x6", "latents"));  // a group's are its own
  EXPECT_FALSE(hands_on("backbone/groups-2x6", "latent"));
  EXPECT_TRUE(hands_on("backbone/layers-20-23", "latents"));
  EXPECT_TRUE(hands_on("backbone/layers-20-23", "keys"));
}

// Spec, model, 5, 6.3, 7 and 12.
TEST(Explorer, SaysWhatAPartDoesInItsLayer) {
  const auto says = [](std::string_view id, std::string_view text) {
    const Node& node = node_at(released(), id);
    return (node.sentence + node.formula).find(text) != std::string::npos;
  };
  const std::string plain = "backbone/layers-20-23/source/attention/";
  EXPECT_TRUE(says("backbone/groups-2x6/source/attention/compressor", "softmax"));
  EXPECT_FALSE(says(plain + "compressor", "softmax"));
  EXPECT_FALSE(says(plain + "compressor/latents", "group"));
  EXPECT_FALSE(says(plain + "compressor/values", "FP32"));
  EXPECT_TRUE(says(plain + "indexer/selection", "newest"));
  EXPECT_TRUE(says("backbone/groups-2x6/reusing/experts/mixture/routed", "clamp"));
  EXPECT_TRUE(says("backbone/groups-2x6/reusing/experts/mixture/shared", "clamp"));
  const auto keys = node_at(released(), "drafts/proposal/stages/experts/router").config_keys;
  EXPECT_NE(std::ranges::find(keys, "dspark_n_routed_experts"), keys.end());
  EXPECT_EQ(std::ranges::find(keys, "n_routed_experts"), keys.end());
}

// An index key has 68 bytes; 2,048 blocks of 8 entries are candidates of a token.
TEST(Explorer, BoundsWhatCandidatesCost) {
  const Explorer explorer =
      explored(kSource / "tests/data/released", {.context = 1 << 20, .prefill = 1});
  const auto bytes = [&](std::string_view id) { return node_at(explorer, id).decode.bytes; };
  EXPECT_GT(bytes("backbone/layers-20-23/source/attention/indexer/selection"), 68.0 * (1 << 20));
  const double used = bytes("index-source/attention/indexer/selection");
  EXPECT_GT(used, 68.0 * 16384);
  EXPECT_LT(used, 68.0 * 16384 * 1.1);
}

TEST(Explorer, TellsSharesAndWhatIsCountedApart) {
  const Node& expert = node_at(released(), "backbone/groups-2x6/reusing/experts/mixture/routed");
  EXPECT_EQ(expert.share.of, 384);
  EXPECT_EQ(expert.share.decode_visits, 6);
  EXPECT_EQ(expert.share.prefill_visits, 384);
  // Of one that is visited: two operations per weight.
  EXPECT_DOUBLE_EQ(expert.decode.flops * 384 / 6, 2.0 * 3 * 5120 * 2304);
  EXPECT_EQ(released().root.apart, (std::vector<std::string>{"drafts", "vision", "shortcut"}));
  EXPECT_EQ(released().root.decode.bytes, node_at(released(), "backbone").decode.bytes);
  EXPECT_EQ(node_at(released(), "drafts").apart, (std::vector<std::string>{"drafts/proposal"}));
  // 1 x 1,021 cells are the most that 1,024 positions have room for (spec, vision, 2).
  const Node& patches = node_at(released(), "vision/patches");
  EXPECT_EQ(patches.outputs[0].shape[0].number, 9 * 1021);
}

TEST(Explorer, NamesExtentsByTheirField) {
  const auto named = [](const Explorer& explorer, std::string_view id, std::string_view field) {
    const Node& node = node_at(explorer, id);
    for (const auto* list : {&node.inputs, &node.outputs}) {
      for (const NodeOperand& operand : *list) {
        if (operand.name == field) return names(operand.shape).back();
      }
    }
    return std::string("no such field");
  };
  const Explorer nano = explored(kSource / "models/nano");
  EXPECT_EQ(named(nano, "backbone/layers-2-3/reusing/attention/output/projection", "y"), "dim");
  EXPECT_EQ(named(nano, "backbone/layers-2-3/reusing/attention/rotation", "frequencies"),
            "rope_head_dim / 2");
  EXPECT_EQ(named(nano, "backbone/layers-2-3/source/attention/indexer/queries", "y"),
            "index_n_heads * index_head_dim");
  const Node& hashes = node_at(released(), "backbone/ngrams");
  EXPECT_EQ(names(hashes.outputs.back().shape)[2], "engram_layer_ids.size");
  const Explorer tiny = explored(kSource / "tests/data/tiny-b");
  EXPECT_EQ(names(node_at(tiny, "drafts/proposal/head").outputs[0].shape)[1], "dspark_block_size");
}

TEST(Explorer, CountsAtTheSizeAskedFor) {
  const Explorer explorer =
      explored(kSource / "tests/data/released", {.context = 1024, .batch = 4, .prefill = 100});
  const Node& node = node_at(explorer, "backbone/groups-2x6/reusing/attention/output/projection");
  ASSERT_EQ(node.inputs[0].shape.size(), 3u);
  EXPECT_EQ(node.inputs[0].shape[0].number, 4);
  EXPECT_EQ(node.decode.flops, 4 * 2 * 41'943'040);
  EXPECT_EQ(node.prefill.flops, 400.0 * 2 * 41'943'040);
  EXPECT_EQ(node_at(explorer, "backbone").cache_bytes_per_token, 890 + 4);
}

TEST(Explorer, PlacesWhatQueuesNote) {
  const auto config = load_config(kSource / "models/nano");
  ASSERT_TRUE(config);
  const auto model = PlannedModel::make(*config);
  ASSERT_TRUE(model);
  const Explorer explorer = explored(kSource / "models/nano");
  std::set<std::pair<std::string, int64_t>> places;
  for (const meta::Record& record : model->survey({1, 1, 256, {4, 4}}).records) {
    const NodePlace* place = place_of(explorer, record.parts);
    ASSERT_NE(place, nullptr) << record.name << " " << record.label;
    const Node& node = node_at(explorer, place->node);
    EXPECT_EQ(node.id, place->node);
    const bool experts = record.name == "moe_experts";
    EXPECT_EQ(node.operation, experts ? "" : record.name) << node.id;
    places.insert({place->node, place->layer});
  }
  EXPECT_TRUE(places.contains({"backbone/read-out/head", -1}));
  EXPECT_TRUE(places.contains({"backbone/layers-2-3/reusing/experts/router", 3}));
}

TEST(Explorer, NamesALayersStructureForEveryLayer) {
  const Explorer& explorer = released();
  ASSERT_EQ(explorer.layers.size(), 43u);
  for (size_t i = 0; i < explorer.layers.size(); ++i) {
    EXPECT_EQ(explorer.layers[i].layer, static_cast<int64_t>(i));
    const Node& node = node_at(explorer, explorer.layers[i].node);
    EXPECT_TRUE(std::ranges::find(node.layers, static_cast<int64_t>(i)) != node.layers.end());
  }
}

class ExplorerOfFiles : public testing::TestWithParam<const char*> {};

TEST_P(ExplorerOfFiles, TotalsEqualTheFiles) {
  const auto folder = kSource / GetParam();
  const Explorer explorer = explored(folder);
  const auto checkpoint = Checkpoint::open(folder);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_TRUE(explorer.has_files);
  EXPECT_TRUE(explorer.mismatches.empty()) << totals_text(explorer);
  EXPECT_EQ(explorer.total.bytes, checkpoint->total_bytes());
  EXPECT_EQ(explorer.total.tensors, std::ssize(checkpoint->tensors()));
  for (const ExplorerTensor& tensor : explorer.tensors) {
    // Every byte range is the tensor's own.
    const auto file = MappedFile::open(folder / tensor.file);
    ASSERT_TRUE(file);
    const auto& bytes = checkpoint->at(tensor.name).bytes;
    ASSERT_EQ(std::ssize(bytes), tensor.end - tensor.begin) << tensor.name;
    const auto own = file->bytes().subspan(static_cast<size_t>(tensor.begin), bytes.size());
    ASSERT_TRUE(std::ranges::equal(own, bytes)) << tensor.name;
  }
}

TEST_P(ExplorerOfFiles, EveryTensorBelongsToExactlyOneLeaf) {
  const Explorer explorer = explored(kSource / GetParam());
  std::vector<int> owners(explorer.tensors.size());
  visit_nodes(explorer.root, [&](const Node& node) {
    for (const NodeWeight& weight : node.weights) {
      if (!weight.owner.empty()) continue;
      EXPECT_TRUE(node.children.empty()) << node.id;
      for (const auto& place : weight.places) ++owners[place.tensor];
    }
  });
  for (size_t i = 0; i < owners.size(); ++i) EXPECT_EQ(owners[i], 1) << explorer.tensors[i].name;
}

TEST_P(ExplorerOfFiles, EveryNodeIsDescribedAndFoundByItsId) {
  const Explorer explorer = explored(kSource / GetParam());
  std::set<std::string> ids;
  visit_nodes(explorer.root, [&](const Node& node) {
    EXPECT_TRUE(ids.insert(node.id).second) << node.id;
    EXPECT_FALSE(node.sentence.empty()) << node.id;
    EXPECT_EQ(node.parameters * node.count(), node.parameters_total) << node.id;
    const auto found = find_node(explorer, node.id);
    EXPECT_TRUE(found && *found == &node) << node.id;
    if (!node.operation.empty()) {
      EXPECT_TRUE(node.children.empty()) << node.id;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Models, ExplorerOfFiles,
                         testing::Values("tests/data/tiny-a", "tests/data/tiny-b", "models/nano"));

std::string lines_of(const std::filesystem::path& path, int begin, int end) {
  std::ifstream file(path);
  std::string line, text;
  for (int number = 1; std::getline(file, line) && number <= end; ++number) {
    if (number >= begin) text.append(text.empty() && number == begin ? "" : "\n").append(line);
  }
  return text;
}

TEST(Explorer, EvidenceOpensAndHoldsWhatItNames) {
  int excerpts = 0;
  visit_nodes(released().root, [&](const Node& node) {
    if (node.id == "model") return;
    ASSERT_FALSE(node.code.empty()) << node.id;
    for (const Excerpt& excerpt : node.code) {
      ++excerpts;
      const int shown = std::min(excerpt.end, excerpt.begin + Excerpt::kMostLines - 1);
      EXPECT_EQ(excerpt.text, lines_of(kSource / excerpt.file, excerpt.begin, shown)) << node.id;
      const bool contract =
          excerpt.text.find("struct " + excerpt.function + " {") != std::string::npos;
      const bool scope = excerpt.text.find("Within") != std::string::npos;
      EXPECT_TRUE(contract || scope) << node.id << "\n" << excerpt.text;
      EXPECT_EQ(excerpt.function.find_first_of("<( "), std::string::npos) << excerpt.function;
    }
    if (!node.operation.empty() && node.operation != "copy") {
      EXPECT_EQ(node.code.size(), 2u) << node.id;
      EXPECT_NE(node.code[0].text.find(node.operation), std::string::npos)
          << node.id << " " << node.code[0].text;
    }
  });
  EXPECT_GT(excerpts, 200);
}

TEST(Explorer, ShowsWhatFilesAndConfigurationDisagreeOn) {
  const DamagedCheckpoint folder;
  const std::string shard = "model-00001-of-00003.safetensors";
  DamagedCheckpoint::Shard content = folder.read_shard(shard);
  auto& header = content.header;
  std::string missing, changed;
  for (const auto& item : header.items()) {
    if (item.key() == "__metadata__") continue;
    if (missing.empty()) {
      missing = item.key();
    } else if (changed.empty() && item.value()["shape"].size() == 1) {
      changed = item.key();
    }
  }
  header["something.else"] = header[missing];
  header.erase(missing);
  header[changed]["shape"] = {1, header[changed]["shape"][0]};
  folder.write_shard(shard, content);
  const Explorer explorer = explored(folder.path());
  const std::string text = totals_text(explorer);
  EXPECT_NE(text.find("NOT reconciled"), std::string::npos) << text;
  std::map<std::string, int> named;
  for (const Mismatch& mismatch : explorer.mismatches) ++named[mismatch.tensor];
  EXPECT_GE(named[missing], 1) << text;
  EXPECT_EQ(named[changed], 1) << text;
  EXPECT_EQ(named["something.else"], 1) << text;
}

TEST(Explorer, ShowsAShardThatIsNotThere) {
  const DamagedCheckpoint folder;
  folder.remove("model-00002-of-00003.safetensors");
  const Explorer explorer = explored(folder.path());
  ASSERT_FALSE(explorer.mismatches.empty());
  EXPECT_EQ(explorer.mismatches[0].tensor, "model-00002-of-00003.safetensors");
}

TEST(Explorer, RefusesWhatIsNoModel) {
  const TestFolder folder;
  EXPECT_FALSE(explore(folder.path(), {}));
  EXPECT_FALSE(explore(folder.path() / "nothing", {}));
  folder.write("config.json", "{\"dim\": 3}");
  EXPECT_FALSE(explore(folder.path(), {}));
  ExplorerOptions options;
  options.context = int64_t{1} << 40;
  const auto too_long = explore(kSource / "tests/data/released", options);
  ASSERT_FALSE(too_long);
  EXPECT_NE(too_long.error().message.find("1048576"), std::string::npos);
  const auto too_much = explore(kSource / "tests/data/released", {.batch = 65536});
  ASSERT_FALSE(too_much);
  EXPECT_NE(too_much.error().message.find("65536 x 8192"), std::string::npos);
}

TEST(Explorer, FindsNodesByTheEndOfTheirPathAndByTitle) {
  const Explorer& explorer = released();
  EXPECT_EQ(node_at(explorer, "proposal/chain").id, "drafts/proposal/chain");
  EXPECT_EQ(node_at(explorer, "markov chain").id, "drafts/proposal/chain");
  const auto several = find_node(explorer, "output/projection");
  ASSERT_FALSE(several);
  EXPECT_NE(several.error().message.find("and"), std::string::npos);
  const auto none = find_node(explorer, "markow chane");
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("drafts/proposal/chain"), std::string::npos)
      << none.error().message;
}

TEST(Explorer, StaysSmallAsJson) {
  const std::string json = explorer_json(released());
  EXPECT_LT(json.size(), size_t{2'000'000});
}

TEST(ConfigKeys, EvaluatesExpressions) {
  const ConfigKeys keys(released().config);
  EXPECT_EQ(keys.value_of("o_groups * o_lora_rank"), 8192);
  EXPECT_EQ(keys.value_of("n_heads * head_dim / o_groups"), 4096);
  EXPECT_EQ(keys.value_of("(2 + hc_mult) * hc_mult"), 24);
  EXPECT_EQ(keys.value_of("head_dim + head_dim / 32"), 528);
  EXPECT_EQ(keys.value_of("dim / 3"), std::nullopt);
  EXPECT_EQ(keys.value_of("no_such_key"), std::nullopt);
  EXPECT_EQ(keys.value_of("(dim"), std::nullopt);
  EXPECT_EQ(keys.value_of("engram_layer_ids"), std::nullopt);
  EXPECT_EQ(keys.value_of("engram_layer_ids.size + 1"), 3);
  EXPECT_EQ(keys.keys_in("dim * (hc_mult + 1), dim, nothing"),
            (std::vector<std::string>{"dim", "hc_mult"}));
}

}  // namespace
}  // namespace cachalot
