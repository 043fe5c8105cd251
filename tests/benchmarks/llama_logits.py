"""Run by quality.py in an interpreter that has llama-cpp-python: token ids in, the logits after each of them out.

python llama_logits.py MODEL.gguf OUT.npy < token_ids
"""

import sys

import llama_cpp  # type: ignore[import-not-found]
import numpy as np

BATCH = 64


def main() -> None:
    model_path, out_path = sys.argv[1:]
    token_ids = [int(word) for word in sys.stdin.read().split()]
    llama_cpp.llama_backend_init()
    model_params = llama_cpp.llama_model_default_params()
    # Weights in another order give the same products; on processors with AMX, that path crashes in some builds.
    model_params.use_extra_bufts = False
    model = llama_cpp.llama_model_load_from_file(model_path.encode(), model_params)
    if not model:
        raise RuntimeError(f"llama.cpp can't load {model_path}")
    vocab_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    params = llama_cpp.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch = len(token_ids), BATCH, BATCH
    context = llama_cpp.llama_init_from_model(model, params)
    logits = np.lib.format.open_memmap(out_path, "w+", np.float32, (len(token_ids), vocab_size))
    batch = llama_cpp.llama_batch_init(BATCH, 0, 1)
    for start in range(0, len(token_ids), BATCH):
        piece = token_ids[start : start + BATCH]
        for i, token_id in enumerate(piece):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token_id, start + i, 1, True
            batch.seq_id[i][0] = 0
        batch.n_tokens = len(piece)
        if llama_cpp.llama_decode(context, batch):
            raise RuntimeError("llama_decode failed")
        shape = (len(piece), vocab_size)
        logits[start : start + len(piece)] = np.ctypeslib.as_array(llama_cpp.llama_get_logits(context), shape)
    logits.flush()


if __name__ == "__main__":
    main()
