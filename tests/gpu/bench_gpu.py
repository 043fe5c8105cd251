"""Figures from a GPU, for docs/performance.md: `python tests/gpu/bench_gpu.py` (about 40 GB of device memory).

1. Decode attention at 64 sequences x 8,192 tokens with Llama 3 8B's heads, as a share of a copy on the same device.
2. Tokens a second of greedy decoding with random weights in Llama 3 8B's shape, one sequence and several, beside
   transformers with attn_implementation="sdpa", in turns, on the same weights and token ids.

`--layers 4` is quicker and fits smaller devices; only figures of equally many layers compare.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from paged_chat.engine import Engine, EngineConfig, SamplingParams
from paged_chat.engine.kernel_bandwidth import copy_gb_per_s, gb_per_s
from paged_chat.engine.kernel_cases import KernelInputs
from paged_chat.kernels import choose_backend

LLAMA_3_8B: dict[str, Any] = {
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
    "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "bos_token_id": 128000,
    "eos_token_id": 128001,
}


def bench_attention(device: torch.device) -> None:
    case = KernelInputs(device, torch.bfloat16).long_decode()
    assert case.num_bytes is not None
    attend, _ = case.prepare(choose_backend("triton", device))
    reads, copies = gb_per_s(case.num_bytes, attend, device), copy_gb_per_s(device)
    print(f"decode attention, {case.shape}: {reads:,.0f} GB/s; a copy: {copies:,.0f} GB/s; share {reads / copies:.1%}")


def save_random_model(folder: Path, num_layers: int, device: torch.device) -> None:
    """Random weights as transformers initialises them, in bfloat16, made on the device."""
    import transformers

    config = transformers.LlamaConfig(**LLAMA_3_8B, num_hidden_layers=num_layers)
    torch.manual_seed(0)
    with device:
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)


def our_times(engine: Engine, prompts: list[list[int]], num_tokens: int) -> float:
    """Seconds for so many tokens of each prompt; the prompts' own computation is in the cache already."""
    params = SamplingParams(temperature=0.0, max_tokens=num_tokens, ignore_eos=True)
    start = time.perf_counter()
    engine.generate(prompts, params)
    return time.perf_counter() - start


def their_times(model: object, prompts: list[list[int]], num_tokens: int, device: torch.device) -> float:
    """Seconds for so many tokens of each prompt, less the time for the first: their prompts are computed anew."""
    input_ids = torch.tensor(prompts, device=device)

    def seconds(count: int) -> float:
        torch.cuda.synchronize(device)
        start = time.perf_counter()
        model.generate(  # type: ignore[attr-defined]
            input_ids,
            attention_mask=torch.ones_like(input_ids),
            do_sample=False,
            min_new_tokens=count,
            max_new_tokens=count,
            pad_token_id=0,
        )
        torch.cuda.synchronize(device)
        return time.perf_counter() - start

    first = seconds(1)
    return seconds(num_tokens) - first


def bench_decoding(device: torch.device, num_layers: int, batch_sizes: list[int], rounds: int) -> None:
    import transformers

    prompt_len, num_tokens = 1024, 128
    generator = torch.Generator().manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        save_random_model(Path(folder), num_layers, device)
        torch.cuda.empty_cache()
        theirs = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.bfloat16, attn_implementation="sdpa"
        ).to(device)
        num_blocks = max(batch_sizes) * -(-(prompt_len + num_tokens) // 16) + 64
        config = EngineConfig(
            model=folder, device="cuda", dtype="bfloat16", num_blocks=num_blocks, max_num_seqs=max(batch_sizes)
        )
        with Engine(config) as engine:
            for batch_size in batch_sizes:
                prompts = torch.randint(3, 100_000, (batch_size, prompt_len), generator=generator).tolist()
                our_times(engine, prompts, num_tokens)  # fills the cache, records the graphs
                their_times(theirs, prompts, 2, device)
                ours, peers = [], []
                for _ in range(rounds):
                    ours.append(batch_size * num_tokens / our_times(engine, prompts, num_tokens))
                    peers.append(batch_size * (num_tokens - 1) / their_times(theirs, prompts, num_tokens, device))
                mine, other = statistics.median(ours), statistics.median(peers)
                print(
                    f"decoding, {num_layers} layers, {batch_size} x {prompt_len} + {num_tokens}: "
                    f"{mine:,.0f} tokens/s; transformers {other:,.0f}; {mine / other:.2f} times"
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("bench_gpu needs a CUDA device, and torch sees none")
    device = torch.device("cuda", torch.cuda.current_device())
    print(f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}")
    bench_attention(device)
    bench_decoding(device, chosen.layers, chosen.batch_sizes, chosen.rounds)


if __name__ == "__main__":
    main()
