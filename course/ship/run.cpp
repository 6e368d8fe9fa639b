// Writes more letters of a text with an exported GPT: run gpt.so "A loop " 40
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

namespace ffi = tvm::ffi;

struct Room {  // where the numbers of a tensor of ours lie
  void AllocData(DLTensor* tensor) {
    size_t bytes = ffi::GetDataSize(*tensor);
    tensor->data = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  }
  void FreeData(DLTensor* tensor) { std::free(tensor->data); }
};

ffi::Tensor TokensOf(const std::string& text) {
  ffi::Shape shape{1, static_cast<int64_t>(text.size())};
  auto tokens = ffi::Tensor::FromNDAlloc(Room(), shape, {kDLInt, 64, 1}, {kDLCPU, 0});
  auto* numbers = static_cast<int64_t*>(tokens.data_ptr());
  for (size_t i = 0; i < text.size(); ++i) numbers[i] = text[i] - ' ';
  return tokens;
}

int main(int count, char** words) try {
  if (count != 4) {
    std::fprintf(stderr, "run LIBRARY TEXT LETTERS\n");
    return 2;
  }
  auto start = std::chrono::steady_clock::now();
  ffi::Module library = ffi::Module::LoadFromFile(words[1]);
  auto machine = (*library->GetFunction("vm_load_executable"))().cast<ffi::Module>();
  const int pooled = 2;  // one allocator for the CPU, one for what the machine itself needs
  (*machine->GetFunction("vm_initialization"))(int(kDLCPU), 0, pooled, int(kDLCPU), 0, pooled);
  ffi::Function forward = *machine->GetFunction("main");
  auto ready = std::chrono::steady_clock::now();

  std::string text = words[2];
  for (int letter = std::atoi(words[3]); letter > 0; --letter) {
    auto logits = forward(TokensOf(text)).cast<ffi::Tensor>();  // (1, letters so far, 95)
    auto* last = static_cast<float*>(logits.data_ptr()) + (logits.size(1) - 1) * logits.size(2);
    text += static_cast<char>(' ' + (std::max_element(last, last + logits.size(2)) - last));
  }
  auto done = std::chrono::steady_clock::now();
  std::printf("%s\n", text.c_str());
  std::fprintf(stderr, "loaded in %.1f ms, written in %.1f ms\n",
               std::chrono::duration<double, std::milli>(ready - start).count(),
               std::chrono::duration<double, std::milli>(done - ready).count());
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
