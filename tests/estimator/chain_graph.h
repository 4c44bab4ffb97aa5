// An exported graph of any length: a chain of layers, as the exporter writes one. A layer is a product and a ReLU, and
// in backward three operators: the ReLU's gradient, the gradient of the input and that of the weight of 4 MiB. FP32, on
// CUDA, for any batch size. Pure.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <vector>

namespace plimsoll::estimator::testing {

inline std::string joined_rows(const std::vector<std::string>& rows) {
  std::string text = "[";
  for (const std::string& row : rows) {
    text += (text.size() > 1 ? "," : "") + row;
  }
  return text + "]";
}

// The text of the file.
inline std::string chain_graph(int layers) {
  const auto row = [](std::initializer_list<std::string> columns) { return joined_rows(columns); };
  const auto text = [](int value) { return std::to_string(value); };
  const int backward = 2 * layers;
  std::vector<std::string> storages = {row({"[0,4096]", "2", "-1", "-1"})};
  std::vector<std::string> tensors = {row({"0", "0", "0"})};
  std::vector<std::string> modules = {"\"\""};
  std::vector<std::string> parameters;
  std::vector<std::string> forward;
  std::vector<std::string> back;
  std::vector<std::string> saved;
  const auto made = [&](const char* bytes, const char* role, int from, int until, const char* layout) {
    tensors.push_back(row({text(static_cast<int>(storages.size())), layout, "0"}));
    storages.push_back(row({bytes, role, text(from), text(until)}));
    return static_cast<int>(tensors.size()) - 1;
  };
  int x = 0;
  for (int i = 0; i < layers; ++i) {
    const int op = 2 * i;
    const int b = backward + 3 * (layers - 1 - i);
    modules.push_back("\"layers." + text(i) + "\"");
    const int weight = made("4194304", "0", -1, -1, "1");
    const int product = made("[0,4096]", "3", op, op + 2, "0");
    const int result = made("[0,4096]", "3", op + 1, op + 3, "0");
    const int through = made("[0,4096]", "5", b, b + 3, "0");
    const int gradient = made("4194304", "4", b + 1, -1, "1");
    const int next = made("[0,4096]", "5", b + 2, std::min(b + 4, backward + 3 * layers), "0");
    forward.push_back(row({"0", text(i + 1), "-1", row({text(x), text(weight)}), row({text(product)})}));
    forward.push_back(row({"1", text(i + 1), "-1", row({text(product)}), row({text(result)})}));
    back.push_back(row({"0", text(i + 1), "-1", row({text(through), text(weight)}), row({text(next)})}));
    back.push_back(row({"0", text(i + 1), "-1", row({text(through), text(x)}), row({text(gradient)})}));
    back.push_back(row({"2", text(i + 1), "-1", row({text(result)}), row({text(through)})}));
    saved.push_back(row({text(x), text(op), text(b + 1), text(b + 3)}));
    saved.push_back(row({text(result), text(op + 2), text(b), text(b + 1)}));
    parameters.push_back("{\"name\":\"layers." + text(i) + ".weight\",\"storage\":" + text(weight) +
                         ",\"layout\":1,\"dtype\":0,\"trainable\":true,\"gradient\":[" + text(gradient) +
                         "],\"sparseGradient\":false}");
    x = result;
  }
  forward.insert(forward.end(), back.rbegin(), back.rend());
  return "{\"format\":\"plimsoll-graph/"
         "1\",\"name\":\"chain\",\"producer\":{\"torch\":\"2.15.0\"},\"batchSize\":64,"
         "\"traces\":[{\"device\":\"cuda\",\"precision\":\"FP32\",\"method\":\"fake\",\"notes\":[],"
         "\"batchSizes\":[64,128],"
         "\"dtypes\":[\"float32\"],\"roles\":[\"parameter\",\"buffer\",\"input\",\"activation\",\"gradient\","
         "\"backward\"],"
         "\"operatorNames\":[\"aten::mm\",\"aten::relu\",\"aten::threshold_backward\"],"
         "\"layouts\":[{\"shape\":[[0,1],1024]},{\"shape\":[1024,1024]}],\"attributes\":[],\"modules\":" +
         joined_rows(modules) + ",\"storages\":" + joined_rows(storages) +
         ",\"tensors\":" + joined_rows(tensors) + ",\"operators\":" + joined_rows(forward) +
         ",\"saved\":" + joined_rows(saved) + ",\"forwardEnd\":" + text(backward) +
         ",\"lossEnd\":" + text(backward) + ",\"parameters\":" + joined_rows(parameters) +
         ",\"buffers\":[]}]}";
}

}  // namespace plimsoll::estimator::testing
