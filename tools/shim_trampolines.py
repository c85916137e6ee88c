"""Writes the shim's trampolines, names and version script from the CUDA headers.

usage: shim_trampolines.py INCLUDE_FOLDER EXTRA_NAMES ARCHITECTURE OUTPUT_FOLDER

Names are what the headers declare or make of names by macros (``_v2``, ``_ptsz``, ``_ptds``), what
the versions of the typedefs imply (``cuCtxCreate_v3``), and what the file EXTRA_NAMES lists, one a
line, with the version of its typedef behind it or none. A name too many does no harm: it answers
CUDA_ERROR_NOT_SUPPORTED.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from string import Template

PROTOTYPE_HEADERS = ["cuda.h", "cudaProfiler.h", "cudaGL.h", "cudaEGL.h", "cudaVDPAU.h"]
TYPEDEF_HEADERS = ["cudaTypedefs.h", "cudaProfilerTypedefs.h", "cudaGLTypedefs.h"]
TYPEDEF_HEADERS += ["cudaEGLTypedefs.h", "cudaVDPAUTypedefs.h"]

PROTOTYPE = re.compile(r"\bCUresult\s+CUDAAPI\s+(cu[A-Z]\w*)\s*\(")
ALIAS = re.compile(r"^\s*#\s*define\s+(cu[A-Z]\w*)\s+(cu[A-Z]\w*)\s*$", re.MULTILINE)
PER_THREAD = re.compile(r"\b__CUDA_API_(PTDS|PTSZ)\(\s*(cu[A-Z]\w*)\s*\)")
EXTRA = re.compile(r"^(cu[A-Z]\w*)(?: (\d+))?$", re.MULTILINE)
TYPEDEF = re.compile(r"\bPFN_(cu[A-Z]\w*?)_v(\d+)(?:_(ptds|ptsz))?\)")

# What a name means from a version on, where the headers have a macro instead of a symbol.
RENAMED = [("cuGraphInstantiate", 12000, "cuGraphInstantiateWithFlags")]
FEWEST_NAMES = 600
NOTE = "Made by tools/shim_trampolines.py from the CUDA headers: not to be edited."


@dataclass(frozen=True, order=True)
class ProcAddress:
    """What cuGetProcAddress means by a name from a CUDA version on, in both flavours of stream."""

    name: str
    version: int
    symbol: str
    per_thread: str


@dataclass(frozen=True)
class Api:
    """The driver's interface: every exported name, sorted, and the meanings of names."""

    names: list[str]
    meanings: list[ProcAddress]


def read_headers(folder: Path, names: list[str]) -> str:
    """Return the text of those of the headers that are there."""
    present = [folder / name for name in names if (folder / name).is_file()]
    return "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in present)


def read_api(headers: str, typedefs: str, extra: str) -> Api:
    """Collect names and meanings. The nth version of a name has the symbol name_vn."""
    extra_versions = dict(EXTRA.findall(extra))
    names = set(PROTOTYPE.findall(headers)) | set(extra_versions)
    for old, new in ALIAS.findall(headers):
        names |= {old, new}
    for suffix, name in PER_THREAD.findall(headers):
        names |= {name, f"{name}_{suffix.lower()}"}

    versions: dict[str, set[int]] = {}
    for name, version, _ in TYPEDEF.findall(typedefs):
        versions.setdefault(name, set()).add(int(version))
    for name, version in extra_versions.items():
        if version:
            versions.setdefault(name, set()).add(int(version))
    symbols = {
        (name, version): name if nth == 0 else f"{name}_v{nth + 1}"
        for name, known in versions.items()
        for nth, version in enumerate(sorted(known))
    }
    names |= set(symbols.values())
    for name, version, suffix in TYPEDEF.findall(typedefs):
        if suffix:
            names.add(f"{symbols[name, int(version)]}_{suffix}")

    renamed = {(name, version): symbol for name, version, symbol in RENAMED}
    meanings = [
        ProcAddress(name, version, symbol, per_thread_symbol(symbol, names))
        for (name, version), symbol in (symbols | renamed).items()
        if symbol in names
    ]
    return Api(sorted(names), sorted(meanings))


def per_thread_symbol(symbol: str, names: set[str]) -> str:
    """Return the symbol for per-thread default streams, where there is one of its own."""
    for suffix in ("ptsz", "ptds"):
        if f"{symbol}_{suffix}" in names:
            return f"{symbol}_{suffix}"
    return symbol


# A trampoline jumps through its entry in the table; at first that leads to a stub which asks
# hippogriff_shim_resolve(index) for the target with all arguments kept.
X86_64_PROLOGUE = """
        .text
        .hidden hippogriff_shim_entries
        .hidden hippogriff_shim_resolve
        .type   hippogriff_shim_lazy, @function
hippogriff_shim_lazy:
        .cfi_startproc
        .cfi_adjust_cfa_offset 8
        pushq %rax; .cfi_adjust_cfa_offset 8
        pushq %rdi; .cfi_adjust_cfa_offset 8
        pushq %rsi; .cfi_adjust_cfa_offset 8
        pushq %rdx; .cfi_adjust_cfa_offset 8
        pushq %rcx; .cfi_adjust_cfa_offset 8
        pushq %r8;  .cfi_adjust_cfa_offset 8
        pushq %r9;  .cfi_adjust_cfa_offset 8
        pushq %r10; .cfi_adjust_cfa_offset 8
        subq $128, %rsp; .cfi_adjust_cfa_offset 128
        movups %xmm0, (%rsp);    movups %xmm1, 16(%rsp)
        movups %xmm2, 32(%rsp);  movups %xmm3, 48(%rsp)
        movups %xmm4, 64(%rsp);  movups %xmm5, 80(%rsp)
        movups %xmm6, 96(%rsp);  movups %xmm7, 112(%rsp)
        movl 192(%rsp), %edi
        call hippogriff_shim_resolve
        movq %rax, %r11
        movups (%rsp), %xmm0;    movups 16(%rsp), %xmm1
        movups 32(%rsp), %xmm2;  movups 48(%rsp), %xmm3
        movups 64(%rsp), %xmm4;  movups 80(%rsp), %xmm5
        movups 96(%rsp), %xmm6;  movups 112(%rsp), %xmm7
        addq $128, %rsp; .cfi_adjust_cfa_offset -128
        popq %r10; .cfi_adjust_cfa_offset -8
        popq %r9;  .cfi_adjust_cfa_offset -8
        popq %r8;  .cfi_adjust_cfa_offset -8
        popq %rcx; .cfi_adjust_cfa_offset -8
        popq %rdx; .cfi_adjust_cfa_offset -8
        popq %rsi; .cfi_adjust_cfa_offset -8
        popq %rdi; .cfi_adjust_cfa_offset -8
        popq %rax; .cfi_adjust_cfa_offset -8
        addq $8, %rsp; .cfi_adjust_cfa_offset -8
        jmp *%r11
        .cfi_endproc
        .size hippogriff_shim_lazy, . - hippogriff_shim_lazy
"""
X86_64_FUNCTION = Template("""
        .balign 16
        .globl  $name
        .type   $name, @function
$name:  .cfi_startproc
        endbr64
        jmp     *hippogriff_shim_entries+8*$index(%rip)
        .cfi_endproc
        .size   $name, . - $name
.Llazy_$index:
        .cfi_startproc
        endbr64
        pushq   $$$index
        .cfi_adjust_cfa_offset 8
        jmp     hippogriff_shim_lazy
        .cfi_endproc
""")

AARCH64_PROLOGUE = """
        .text
        .hidden hippogriff_shim_entries
        .hidden hippogriff_shim_resolve
        .type   hippogriff_shim_lazy, %function
hippogriff_shim_lazy:
        .cfi_startproc
        stp     x29, x30, [sp, #-224]!
        .cfi_def_cfa_offset 224
        .cfi_offset 29, -224
        .cfi_offset 30, -216
        mov     x29, sp
        stp     x0, x1, [sp, #16]
        stp     x2, x3, [sp, #32]
        stp     x4, x5, [sp, #48]
        stp     x6, x7, [sp, #64]
        str     x8, [sp, #80]
        stp     q0, q1, [sp, #96]
        stp     q2, q3, [sp, #128]
        stp     q4, q5, [sp, #160]
        stp     q6, q7, [sp, #192]
        mov     w0, w17
        bl      hippogriff_shim_resolve
        mov     x16, x0
        ldp     q6, q7, [sp, #192]
        ldp     q4, q5, [sp, #160]
        ldp     q2, q3, [sp, #128]
        ldp     q0, q1, [sp, #96]
        ldr     x8, [sp, #80]
        ldp     x6, x7, [sp, #64]
        ldp     x4, x5, [sp, #48]
        ldp     x2, x3, [sp, #32]
        ldp     x0, x1, [sp, #16]
        ldp     x29, x30, [sp], #224
        .cfi_restore 30
        .cfi_restore 29
        .cfi_def_cfa_offset 0
        br      x16
        .cfi_endproc
        .size hippogriff_shim_lazy, . - hippogriff_shim_lazy
"""
AARCH64_FUNCTION = Template("""
        .balign 16
        .globl  $name
        .type   $name, %function
$name:  .cfi_startproc
        hint    #34
        adrp    x16, hippogriff_shim_entries+8*$index
        add     x16, x16, :lo12:hippogriff_shim_entries+8*$index
        ldar    x16, [x16]
        br      x16
        .cfi_endproc
        .size   $name, . - $name
.Llazy_$index:
        .cfi_startproc
        hint    #34
        mov     w17, #$index
        b       hippogriff_shim_lazy
        .cfi_endproc
""")
ASSEMBLY = {
    "x86_64": (X86_64_PROLOGUE, X86_64_FUNCTION),
    "aarch64": (AARCH64_PROLOGUE, AARCH64_FUNCTION),
}


def assembly(api: Api, architecture: str) -> str:
    """Return the trampolines and the table they jump through."""
    prologue, function = ASSEMBLY[architecture]
    code = [function.substitute(name=name, index=nth) for nth, name in enumerate(api.names)]
    table = [f"        .quad .Llazy_{nth}" for nth in range(len(api.names))]
    data = [
        "        .data",
        "        .balign 64",
        "        .globl hippogriff_shim_entries",
        "hippogriff_shim_entries:",
        *table,
        '        .section .note.GNU-stack,"",%progbits',
    ]
    return f"/* {NOTE} */\n" + prologue + "".join(code) + "\n".join(data) + "\n"


def header(api: Api) -> str:
    """Return the C++ names: an enumeration of the functions, and what cuGetProcAddress means."""
    lines = [
        f"// {NOTE}",
        "#pragma once",
        "#include <array>",
        "#include <cstdint>",
        "namespace hippogriff::shim {",
        "enum class Function : std::uint16_t {",
        *(f"  {name}," for name in api.names),
        "};",
        f"inline constexpr std::array<const char*, {len(api.names)}> function_names = {{",
        *(f'    "{name}",' for name in api.names),
        "};",
        "struct ProcAddress {",
        "  const char* name;",
        "  int version;",
        "  Function symbol;",
        "  Function per_thread_symbol;",
        "};",
        f"inline constexpr std::array<ProcAddress, {len(api.meanings)}> proc_addresses = {{{{",
        *(
            f'    {{"{m.name}", {m.version}, Function::{m.symbol}, Function::{m.per_thread}}},'
            for m in api.meanings
        ),
        "}};",
        "}  // namespace hippogriff::shim",
    ]
    return "\n".join(lines) + "\n"


def version_script(api: Api) -> str:
    """Return the linker's list of what the library shows: the driver's names and our mark."""
    names = "".join(f"    {name};\n" for name in api.names)
    return f"/* {NOTE} */\n{{\n  global:\n    hippogriff_shim_mark;\n{names}  local:\n    *;\n}};\n"


def main() -> int:
    """Write the files into the output folder."""
    include, extra, architecture, output = sys.argv[1:]
    if architecture not in ASSEMBLY:
        print(f"shim_trampolines.py: no trampolines for {architecture}", file=sys.stderr)
        return 1
    folder = Path(include)
    api = read_api(
        read_headers(folder, PROTOTYPE_HEADERS),
        read_headers(folder, TYPEDEF_HEADERS),
        Path(extra).read_text(encoding="utf-8"),
    )
    if len(api.names) < FEWEST_NAMES:
        print(
            f"shim_trampolines.py: {folder} declares {len(api.names)} functions only",
            file=sys.stderr,
        )
        return 1
    target = Path(output)
    target.mkdir(parents=True, exist_ok=True)
    (target / "trampolines.S").write_text(assembly(api, architecture), encoding="utf-8")
    (target / "shim_functions.hpp").write_text(header(api), encoding="utf-8")
    (target / "libcuda.map").write_text(version_script(api), encoding="utf-8")
    (target / "names.txt").write_text("".join(f"{n}\n" for n in api.names), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
