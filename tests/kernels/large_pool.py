"""E20: `large_pool.py BACKEND` compares blocks behind 2^31 elements with the reference in a small pool.

Memory that nobody touches is never there, so the pool costs addresses only.
"""

import sys

import torch

from paged_chat.kernels import choose_backend, reference

NUM_KV_HEADS, BLOCK_SIZE, HEAD_DIM = 2, 16, 64
ELEMENTS = NUM_KV_HEADS * BLOCK_SIZE * HEAD_DIM
NUM_BLOCKS = 2**31 // (2 * ELEMENTS) + 8
TABLE = [NUM_BLOCKS - 1, 5, NUM_BLOCKS - 2]  # the first and last lie behind element 2^31, the middle before it
CONTEXT_LEN = 40
DTYPE = torch.bfloat16

backend = choose_backend(sys.argv[1], torch.device("cpu"))
key_shape, value_shape = backend.kv_block_shapes(NUM_KV_HEADS, BLOCK_SIZE, HEAD_DIM)
pool = torch.empty(NUM_BLOCKS, 1, 2, ELEMENTS, dtype=DTYPE)
assert pool.numel() > 2**31
large = (pool[:, 0, 0].view(NUM_BLOCKS, *key_shape), pool[:, 0, 1].view(NUM_BLOCKS, *value_shape))
truth_shape, _ = reference.kv_block_shapes(NUM_KV_HEADS, BLOCK_SIZE, HEAD_DIM)
small = (torch.zeros(4, *truth_shape, dtype=DTYPE), torch.zeros(4, *truth_shape, dtype=DTYPE))

torch.manual_seed(0)
key, value = torch.randn(2, CONTEXT_LEN, NUM_KV_HEADS, HEAD_DIM).to(DTYPE)
position = torch.arange(CONTEXT_LEN)
large_table, small_table = torch.tensor([TABLE], dtype=torch.int32), torch.tensor([[1, 2, 3]], dtype=torch.int32)
for kernels, caches, table in ((backend, large, large_table), (reference, small, small_table)):
    slots = table[0].long()[position // BLOCK_SIZE] * BLOCK_SIZE + position % BLOCK_SIZE
    kernels.write_kv(key, value, *caches, slots)
print("write_kv")

angles = torch.outer(torch.arange(CONTEXT_LEN), 10000.0 ** -torch.linspace(0, 1, HEAD_DIM // 2))
query = torch.randn(CONTEXT_LEN, 6, HEAD_DIM).to(DTYPE)
rotated = []
for kernels, caches, table in ((backend, large, large_table), (reference, small, small_table)):
    slots = table[0].long()[position // BLOCK_SIZE] * BLOCK_SIZE + position % BLOCK_SIZE
    rotated.append(query.clone())
    kernels.rope_write_kv(rotated[-1], key.clone(), value.clone(), position, angles.cos(), angles.sin(), *caches, slots)
torch.testing.assert_close(*rotated, rtol=1.6e-2, atol=1.6e-2)
print("rope_write_kv")

lens = torch.tensor([CONTEXT_LEN], dtype=torch.int32)
query = torch.randn(1, 6, HEAD_DIM).to(DTYPE)
torch.testing.assert_close(
    backend.attention_decode(query, *large, large_table, lens, 0.125, None),
    reference.attention_decode(query, *small, small_table, lens, 0.125, None),
    rtol=1.6e-2,
    atol=1.6e-2,
)
print("attention_decode")

query, cu_seqlens_q = torch.randn(9, 6, HEAD_DIM).to(DTYPE), torch.tensor([0, 9], dtype=torch.int32)
torch.testing.assert_close(
    backend.attention_prefill(query, *large, large_table, lens, cu_seqlens_q, 9, 0.125, None),
    reference.attention_prefill(query, *small, small_table, lens, cu_seqlens_q, 9, 0.125, None),
    rtol=1.6e-2,
    atol=1.6e-2,
)
print("attention_prefill")

for source, destination in ((NUM_BLOCKS - 1, 7), (5, NUM_BLOCKS - 3)):
    backend.copy_blocks(pool, torch.tensor([source]), torch.tensor([destination]))
    assert pool[destination].equal(pool[source])
print("copy_blocks")
