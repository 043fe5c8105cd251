"""Which kernels serve which device, and what is imported on the way."""

import subprocess
import sys

import pytest
import torch

from paged_chat.kernels import choose_backend

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


def python(source):
    return subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)


def test_the_processor_gets_the_cpu_kernels():
    assert choose_backend("auto", CPU).name == "cpu"
    assert choose_backend("cpu", CPU).name == "cpu"
    assert choose_backend("reference", CPU).name == "reference"


def test_a_cuda_device_gets_triton():
    pytest.importorskip("triton")
    assert choose_backend("auto", CUDA).name == "triton"
    assert choose_backend("triton", CUDA).name == "triton"
    assert choose_backend("reference", CUDA).name == "reference"


@pytest.mark.parametrize(
    ("name", "device", "message"),
    [
        ("fast", CPU, "unknown kernels 'fast'; choose one of auto, triton, cpu, reference"),
        ("cpu", CUDA, "the cpu kernels can't run on device cuda:0; choose kernels triton or reference"),
        ("triton", CPU, "the triton kernels can't run on device cpu; choose kernels cpu, or set TRITON_INTERPRET=1"),
        ("auto", torch.device("meta"), "no fast kernels for device meta; choose device cpu or cuda"),
    ],
)
def test_what_cannot_run_is_refused_with_a_way_out(monkeypatch, name, device, message):
    pytest.importorskip("triton")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(ValueError, match=message):
        choose_backend(name, device)


def test_importing_the_package_imports_neither_triton_nor_numba():
    done = python("import sys, paged_chat.kernels; print({'triton', 'numba'} & set(sys.modules))")
    assert done.stdout == "set()\n"


def test_without_triton_the_cpu_kernels_work_and_triton_is_refused():
    done = python(
        "import sys; sys.modules['triton'] = None\n"
        "import torch; from paged_chat.kernels import choose_backend\n"
        "kernels = choose_backend('auto', torch.device('cpu'))\n"
        "print(kernels.silu_mul(torch.zeros(1, 4)).tolist())\n"
        "choose_backend('auto', torch.device('cuda'))"
    )
    assert done.stdout == "[[0.0, 0.0]]\n"
    assert "ValueError: the triton kernels need the package triton" in done.stderr
