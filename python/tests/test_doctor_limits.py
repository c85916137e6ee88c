"""The doctor on GPUs and limits, from made-up facts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hippogriff.doctor import Status

if TYPE_CHECKING:
    from conftest import Made
GIB = 1 << 30

# GPUs.


def test_a_machine_without_a_gpu_is_no_problem(made: Made) -> None:
    made.expect("cuda_driver", Status.NOTE, "no GPU", "libcuda.so.1")
    for name in ("device_files", "driver_versions", "compute_mode", "gpudirect_storage"):
        assert made.ask(name) == []


def test_gpus_that_work_are_named(made: Made) -> None:
    made.gpus()
    made.expect("cuda_driver", Status.OK, "13.0", "H100")
    made.driver["version"] = 11080
    made.expect("cuda_driver", Status.PROBLEM, "11.8", "12.0")


@pytest.mark.parametrize(
    ("code", "word"),
    [
        (34, "stub"),
        (100, "CUDA_VISIBLE_DEVICES"),
        (802, "nvidia-fabricmanager"),
        (803, "modprobe"),
        (804, "cuda-compat"),
        (999, "nvidia-smi"),
    ],
)
def test_a_driver_that_does_not_start_says_what_to_do(made: Made, code: int, word: str) -> None:
    made.driver["code"] = code
    made.expect("cuda_driver", Status.PROBLEM, word, f"CUDA error {code}")


@pytest.mark.parametrize(
    ("variable", "value"),
    [("HIPPOGRIFF_CUDA_DRIVER", ""), ("CUDA_VISIBLE_DEVICES", ""), ("CUDA_VISIBLE_DEVICES", "-1")],
)
def test_gpus_that_are_hidden_name_the_variable(made: Made, variable: str, value: str) -> None:
    made.driver["code"] = 100
    made.machine.environ[variable] = value
    made.expect("cuda_driver", Status.NOTE, f"unset {variable}")


def test_a_driver_that_hangs_or_crashes_is_told(made: Made) -> None:
    made.write("/proc/driver/nvidia/version", "NVRM\n")
    made.driver = {"error": "no answer within 20 s"}
    made.expect("cuda_driver", Status.PROBLEM, "no answer within 20 s")


def test_a_container_without_the_gpus_says_how_to_give_them(made: Made) -> None:
    made.write("/proc/driver/nvidia/version", "NVRM\n")
    made.write("/dev/null", "")
    made.expect("cuda_driver", Status.PROBLEM, "--gpus all")
    made.expect("device_files", Status.PROBLEM, "/dev/nvidia0", "--gpus all")
    for name in ("nvidiactl", "nvidia-uvm", "nvidia3"):
        made.write(f"/dev/{name}", "")
    assert made.one("device_files").status == Status.OK


def test_a_gpu_without_a_driver_is_found_on_the_bus(made: Made) -> None:
    for name, vendor, kind in (
        ("0000:00:01.0", "0x8086", "0x030000"),
        ("0000:1b:00.0", "0x10de", "0x030200"),
        ("0000:1b:00.1", "0x10de", "0x040300"),
    ):
        made.write(f"/sys/bus/pci/devices/{name}/vendor", f"{vendor}\n")
        made.write(f"/sys/bus/pci/devices/{name}/class", f"{kind}\n")
    made.expect("cuda_driver", Status.PROBLEM, "0000:1b:00.0", "install")


def test_libraries_of_another_version_than_the_module_are_told(made: Made) -> None:
    made.write(
        "/proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n",
    )
    made.driver["library"] = "/usr/lib/x86_64-linux-gnu/libcuda.so.570.86.10"
    made.expect("driver_versions", Status.PROBLEM, "580.95.05", "570.86.10", "reboot")
    made.gpus()
    made.driver["library"] = "/usr/local/cuda/compat/libcuda.so.590.44.01"
    made.expect("driver_versions", Status.NOTE, "compatibility")
    made.driver["library"] = "/usr/lib/libcuda.so.580.95.05"
    assert made.one("driver_versions").status == Status.OK


def test_compute_modes_that_keep_programs_out_are_told(made: Made) -> None:
    for mode, status in ((2, Status.PROBLEM), (3, Status.NOTE)):
        made.gpus(compute_mode=mode)
        made.expect("compute_mode", status, "nvidia-smi -i 0 -c DEFAULT")
    made.gpus(2, compute_mode=2)
    assert len(made.ask("compute_mode")) == 2


def test_gpudirect_storage_says_what_is_missing_in_turn(made: Made) -> None:
    made.gpus()
    made.expect("gpudirect_storage", Status.NOTE, "RMForceStaticBar1=1", "modprobe")
    made.write("/proc/driver/nvidia/params", 'RegistryDwords: "RMForceStaticBar1=1;"\n')
    assert made.one("gpudirect_storage").status == Status.OK
    made.write("/boot/config-6.8.0-45-generic", "# CONFIG_PCI_P2PDMA is not set\n")
    made.expect("gpudirect_storage", Status.NOTE, "CONFIG_PCI_P2PDMA")
    made.write("/dev/nvidia-fs0", "")
    assert made.one("gpudirect_storage").status == Status.OK
    made.write("/etc/cufile.json", '{"properties": {"allow_compat_mode": true}}')
    made.expect("gpudirect_storage", Status.NOTE, "compatibility mode")


def test_gpudirect_storage_on_an_old_kernel_needs_nvidia_fs(made: Made) -> None:
    made.gpus()
    made.write("/proc/sys/kernel/osrelease", "5.15.0")
    made.expect("gpudirect_storage", Status.NOTE, "too old", "modprobe nvidia-fs")


def test_a_gpu_at_another_node_than_the_cpus_is_told(made: Made) -> None:
    made.gpus()
    device = f"/sys/bus/pci/devices/{made.bus_id}"
    for node, cpus, told in (("1", "64-127", True), ("1", "8-127", False), ("-1", "0-7", False)):
        made.write(f"{device}/numa_node", f"{node}\n")
        made.write(f"/sys/devices/system/node/node{node}/cpulist", f"{cpus}\n")
        findings = made.ask("gpu_numa_node")
        assert bool(findings) == told
    made.write(f"{device}/numa_node", "1")
    made.write("/sys/devices/system/node/node1/cpulist", "64-127\n")
    made.expect("gpu_numa_node", Status.NOTE, "numactl --cpunodebind=1 --membind=1")


def test_a_gpu_with_few_lanes_is_told(made: Made) -> None:
    made.gpus()
    device = f"/sys/bus/pci/devices/{made.bus_id}"
    made.write(f"{device}/max_link_width", "16\n")
    for width, told in (("16", False), ("8", True), ("0", False), ("255", False)):
        made.write(f"{device}/current_link_width", f"{width}\n")
        assert bool(made.ask("gpu_link")) == told


# Limits.


def test_a_memory_limit_below_the_budgets_is_told(made: Made) -> None:
    assert made.one("memory_limit").status == Status.OK
    made.write("/sys/fs/cgroup/memory.max", "max\n")
    assert made.one("memory_limit").status == Status.OK
    made.write("/sys/fs/cgroup/memory.max", f"{64 << 20}\n")
    made.expect("memory_limit", Status.PROBLEM, "may take 64.00 MiB")
    made.write("/sys/fs/cgroup/memory.max", f"{256 << 20}\n")
    for gpus, pinbuffer in ((1, 256), (2, 256), (3, 256), (4, 320)):
        made.gpus(gpus)
        words = (f"may take {pinbuffer}.00 MiB", "HIPPOGRIFF_PINBUFFER=64MiB", "--memory=")
        made.expect("memory_limit", Status.PROBLEM, *words)
    made.write("/sys/fs/cgroup/memory.max", f"{16 * GIB}\n")
    assert made.one("memory_limit").status == Status.OK
    made.machine.environ["HIPPOGRIFF_PARKING"] = "128GiB"
    made.expect("memory_limit", Status.NOTE, "128.00 GiB", "HIPPOGRIFF_PARKING=4096MiB")
    made.machine.environ["HIPPOGRIFF_PARKING"] = "4096MiB"
    assert made.one("memory_limit").status == Status.OK
    made.machine.environ["HIPPOGRIFF_PARKING"] = "what?"
    assert made.one("memory_limit").status == Status.OK


def test_limits_hold_wherever_they_are_in_the_tree(made: Made) -> None:
    made.write("/proc/self/cgroup", "0::/user.slice/job/step\n")
    made.write("/sys/fs/cgroup/user.slice/job/step/memory.max", "max\n")
    made.write("/sys/fs/cgroup/user.slice/job/memory.max", f"{100 << 20}\n")
    made.expect("memory_limit", Status.PROBLEM, "100.00 MiB")
    made.write("/proc/self/cgroup", "0::/../../outside\n")
    made.write("/sys/fs/cgroup/memory.max", f"{64 << 20}\n")
    made.expect("memory_limit", Status.PROBLEM, "64.00 MiB")


def test_limits_of_version_one_are_seen_too(made: Made) -> None:
    made.write("/proc/self/cgroup", "5:cpu,cpuacct:/docker/x\n4:memory:/docker/x\n3:pids:/y\n")
    made.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", f"{2**63 - 4096}\n")
    assert made.one("memory_limit").status == Status.OK
    made.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", f"{100 << 20}\n")
    made.expect("memory_limit", Status.PROBLEM, "100.00 MiB")
    made.write("/sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "100000\n")
    made.write("/sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_period_us", "100000\n")
    made.expect("cpu_quota", Status.PROBLEM, "quota is 1")
    made.write("/sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "-1\n")
    assert made.one("cpu_quota").status == Status.OK
    made.write("/sys/fs/cgroup/pids/y/pids.max", "21\n")
    made.write("/sys/fs/cgroup/pids/y/pids.current", "20\n")
    made.expect("thread_limit", Status.PROBLEM, "1 more")


def test_memory_high_is_told(made: Made) -> None:
    assert made.ask("memory_throttle") == []
    made.write("/sys/fs/cgroup/memory.high", f"{GIB}\n")
    made.expect("memory_throttle", Status.NOTE, "memory.high", "1.00 GiB")


@pytest.mark.parametrize(
    ("quota", "status"),
    [
        ("max 100000", "ok"),
        ("800000 100000", "ok"),
        ("200000 100000", "note"),
        ("100000 100000", "problem"),
        ("50000 100000", "problem"),
        ("nonsense", "ok"),
        ("100000 0", "ok"),
    ],
)
def test_few_cpus_are_told(made: Made, quota: str, status: str) -> None:
    made.write("/sys/fs/cgroup/cpu.max", quota + "\n")
    assert made.one("cpu_quota").status == status


def test_one_cpu_by_affinity_is_told(made: Made) -> None:
    made.write("/proc/self/status", "Cpus_allowed_list:\t5\n")
    made.expect("cpu_quota", Status.PROBLEM, "CPUs: 1")


def test_few_threads_are_told(made: Made) -> None:
    for left, status in ((1000, Status.OK), (50, Status.NOTE), (5, Status.PROBLEM)):
        made.write("/sys/fs/cgroup/pids.max", str(100 + left))
        made.write("/sys/fs/cgroup/pids.current", "100")
        assert made.one("thread_limit").status == status
    made.machine.environ["HIPPOGRIFF_THREADS"] = "4"
    assert made.one("thread_limit").status == Status.NOTE


def test_little_locked_memory_is_told_where_it_matters(made: Made) -> None:
    assert made.one("locked_memory").status == Status.OK
    made.limits(locked="65536")
    made.expect("locked_memory", Status.OK, "64.00 KiB", "does not matter")
    made.gpus()
    made.expect("locked_memory", Status.NOTE, "ulimit -l unlimited", "--ulimit memlock=-1")
    made.limits(locked=str(GIB))
    assert made.one("locked_memory").status == Status.OK
    made.driver = {}
    made.limits(locked="65536")
    made.write("/proc/sys/kernel/osrelease", "5.10.0")
    fresh = type(made)(made.folder)
    fresh.limits(locked="65536")
    fresh.write("/proc/sys/kernel/osrelease", "5.10.0")
    assert fresh.one("locked_memory").status == Status.NOTE


def test_few_open_files_and_a_limited_address_space_are_told(made: Made) -> None:
    made.limits(files="256", space=str(64 * GIB))
    made.expect("open_files", Status.NOTE, "ulimit -n")
    made.expect("address_space", Status.NOTE, "ulimit -v unlimited", "64.00 GiB")
