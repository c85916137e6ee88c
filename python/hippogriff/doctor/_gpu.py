"""Checks of the GPUs and what stands between them and the process."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from hippogriff.doctor._finding import Finding, note, ok, problem
from hippogriff.doctor._machine import parse_list

if TYPE_CHECKING:
    from hippogriff.doctor._machine import Machine

_CUDA_MIN = 12000
_NVIDIA_VENDOR = "0x10de"
_DISPLAY_CLASSES = ("0x0300", "0x0302")
_ON_HOST = "everything goes to device host"
_CONTAINER = (
    "docker run --gpus all (with nvidia-container-toolkit), or a request for nvidia.com/gpu"
)
_P2PDMA_KERNEL = (6, 2)
_PARAMETERS = "RMForceStaticBar1=1;RmForceDisableIomapWC=1;"

# What a CUresult of cuInit means, and what to do.
_CODES = {
    34: (
        "this is the toolkit's stub library",
        "put the driver's own libcuda.so.1 first in the library path",
    ),
    100: ("the driver sees no GPU", f"check nvidia-smi and CUDA_VISIBLE_DEVICES; {_CONTAINER}"),
    802: ("the system is not ready", "systemctl start nvidia-fabricmanager (NVSwitch machines)"),
    803: (
        "the driver's library and its kernel module are of different versions",
        "reboot, or reload the module: modprobe -r nvidia_uvm nvidia && modprobe nvidia_uvm",
    ),
    804: (
        "compatibility libraries stand before the driver's, for a GPU that cannot use them",
        "remove cuda-compat from LD_LIBRARY_PATH",
    ),
}


def cuda_driver(machine: Machine) -> Finding:
    """Whether CUDA's driver starts and has GPUs."""
    facts = machine.driver
    devices = facts.get("devices") or []
    if devices:
        version = int(facts.get("version", 0))
        names = ", ".join(str(device.get("name")) for device in devices)
        found = f"driver for CUDA {_version_text(version)}; {names}"
        if version >= _CUDA_MIN:
            return ok(found)
        meaning = f"the driver is too old: {_ON_HOST}"
        return problem(found, meaning, "install a driver for CUDA 12.0 or newer")
    if machine.environ.get("HIPPOGRIFF_CUDA_DRIVER") == "":
        return note(
            "CUDA is switched off by an empty HIPPOGRIFF_CUDA_DRIVER",
            _ON_HOST,
            "unset HIPPOGRIFF_CUDA_DRIVER",
        )
    if machine.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return note("CUDA_VISIBLE_DEVICES hides all GPUs", _ON_HOST, "unset CUDA_VISIBLE_DEVICES")
    if facts.get("code"):
        words, advice = _CODES.get(
            int(facts["code"]), ("the driver does not start", "check nvidia-smi for this user")
        )
        return problem(f"{words} (CUDA error {facts['code']})", _ON_HOST, advice)
    reason = facts.get("error") or facts.get("why_not") or "no reason"
    if machine.exists("/proc/driver/nvidia/version"):
        return problem(
            f"the kernel has NVIDIA's driver, and its library cannot be used: {reason}",
            _ON_HOST,
            f"in a container: {_CONTAINER}; else install the driver's libcuda (libcuda1)",
        )
    if gpus := _gpus_on_the_bus(machine):
        return problem(
            f"the machine has an NVIDIA GPU ({gpus[0]}) and no driver: {reason}",
            _ON_HOST,
            "install NVIDIA's driver: https://docs.nvidia.com/datacenter/tesla/driver-installation-guide",
        )
    return note(f"no GPU here ({reason})", _ON_HOST)


def device_files(machine: Machine) -> Finding | None:
    """Whether a container has the GPUs' device files."""
    if not machine.exists("/proc/driver/nvidia/version"):
        return None
    nodes = machine.names("/dev")
    missing = [name for name in ("nvidiactl", "nvidia-uvm") if name not in nodes]
    if not any(re.fullmatch(r"nvidia\d+", name) for name in nodes):
        missing.append("nvidia0")
    if not missing:
        return ok("the GPUs' device files are there")
    return problem(
        "absent: " + ", ".join(f"/dev/{name}" for name in missing),
        f"CUDA cannot start: {_ON_HOST}",
        f"in a container: {_CONTAINER}; else nvidia-modprobe -u -c=0",
    )


def driver_versions(machine: Machine) -> Finding | None:
    """Whether the driver's library and kernel module belong together."""
    loaded = re.search(
        r"Module.*?\s(\d+\.\d+(?:\.\d+)?)\s", machine.read("/proc/driver/nvidia/version") or ""
    )
    file = PurePosixPath(str(machine.driver.get("library", ""))).name
    named = re.search(r"\.so\.(\d+\.\d+(?:\.\d+)?)$", file)
    if loaded is None or named is None:
        return None
    if loaded[1] == named[1]:
        return ok(f"kernel module and library are both {loaded[1]}")
    words = f"the kernel module is {loaded[1]}, the library {named[1]}"
    if machine.driver.get("devices"):
        return note(words, "CUDA starts all the same: a compatibility library", "")
    return problem(words, f"CUDA does not start: {_ON_HOST}", _CODES[803][1])


def compute_mode(machine: Machine) -> list[Finding]:
    """Whether programs may use each GPU."""
    findings = []
    for index, device in enumerate(machine.driver.get("devices") or []):
        if device.get("compute_mode") == 2:
            words = f"cuda:{index} is in compute mode Prohibited"
            advice = f"nvidia-smi -i {index} -c DEFAULT (as root)"
            findings.append(problem(words, "no program may use it", advice))
        elif device.get("compute_mode") == 3:
            words = f"cuda:{index} is in compute mode Exclusive_Process"
            meaning = "one process at a time may use it: a second one fails"
            advice = f"nvidia-smi -i {index} -c DEFAULT (as root), if that is not wanted"
            findings.append(note(words, meaning, advice))
    return findings


def gpudirect_storage(machine: Machine) -> Finding | None:
    """Whether drives may write into GPU memory."""
    if not machine.driver.get("devices"):
        return None
    without = "the direct route does not exist; cold files go through host memory, as fast"
    if machine.exists("/dev/nvidia-fs0"):
        setting = machine.read("/etc/cufile.json") or ""
        if re.search(r'"allow_compat_mode"\s*:\s*true', setting):
            return note(
                "nvidia-fs is loaded, and /etc/cufile.json allows compatibility mode",
                "hippogriff asks cuFile to switch it off; where another library set cuFile up "
                "before, it stays on, and the direct route does not exist",
                'set "allow_compat_mode": false in /etc/cufile.json',
            )
        return ok("nvidia-fs is loaded: `hippogriff info` says what cuFile makes of it")
    found = "nvidia-fs is not loaded"
    if machine.kernel < _P2PDMA_KERNEL:
        advice = "modprobe nvidia-fs, or Linux 6.2 or newer for PCI P2PDMA"
        return note(f"{found}, and the kernel is too old for PCI P2PDMA", without, advice)
    parameters = machine.read("/proc/driver/nvidia/params") or ""
    if "RMForceStaticBar1=1" not in parameters:
        advice = (
            f'in /etc/modprobe.d: options nvidia NVreg_RegistryDwords="{_PARAMETERS}" (open '
            "kernel module), and a reboot; or modprobe nvidia-fs"
        )
        return note(f"{found}, and PCI P2PDMA is not set up", without, advice)
    configured = machine.read(f"/boot/config-{machine.release}")
    if configured is not None and "CONFIG_PCI_P2PDMA=y" not in configured:
        advice = "a kernel built with CONFIG_PCI_P2PDMA"
        return note(f"{found}, and the kernel has no PCI P2PDMA", without, advice)
    return ok("PCI P2PDMA may work: `hippogriff info` says what cuFile makes of it")


def gpu_numa_node(machine: Machine) -> list[Finding]:
    """Whether the process runs near its GPUs."""
    findings = []
    for index, device in enumerate(machine.driver.get("devices") or []):
        node = machine.read_number(f"/sys/bus/pci/devices/{device.get('bus_id')}/numa_node")
        text = machine.read(f"/sys/devices/system/node/node{node}/cpulist")
        near = parse_list(text) if node is not None and node >= 0 and text else set()
        if near and machine.cpus and not near & machine.cpus:
            findings.append(
                note(
                    f"cuda:{index} is at NUMA node {node}, the process on CPUs of other nodes",
                    "reads and copies cross the processors' link: often a third slower",
                    f"numactl --cpunodebind={node} --membind={node} your program",
                )
            )
    return findings


def gpu_link(machine: Machine) -> list[Finding]:
    """Whether each GPU has all the PCIe lanes it can use."""
    findings = []
    for index, device in enumerate(machine.driver.get("devices") or []):
        folder = f"/sys/bus/pci/devices/{device.get('bus_id')}"
        width = machine.read_number(f"{folder}/current_link_width")
        most = machine.read_number(f"{folder}/max_link_width")
        if width and most and 0 < width < most <= 32:
            findings.append(
                note(
                    f"cuda:{index} uses {width} of {most} PCIe lanes",
                    f"copies get at most {width / most:.0%} of its link's speed",
                    "another slot, a reseated card, or the firmware's settings",
                )
            )
    return findings


def _gpus_on_the_bus(machine: Machine) -> list[str]:
    folder = "/sys/bus/pci/devices"
    return [
        name
        for name in machine.names(folder)
        if (machine.read(f"{folder}/{name}/vendor") or "").strip() == _NVIDIA_VENDOR
        and (machine.read(f"{folder}/{name}/class") or "").startswith(_DISPLAY_CLASSES)
    ]


def _version_text(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"


CHECKS = (
    cuda_driver,
    device_files,
    driver_versions,
    compute_mode,
    gpudirect_storage,
    gpu_numa_node,
    gpu_link,
)
