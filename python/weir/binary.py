"""Where the program weir is."""

import os
import pathlib
import shutil
import sysconfig


def find_binary() -> str:
    """The path of the program: that of WEIR_BINARY, the one that was installed with this package, or the first on the path."""
    named = os.environ.get("WEIR_BINARY", "")
    if named:
        if not os.path.isfile(named):
            raise FileNotFoundError(f"WEIR_BINARY: {named}: there is no such file")
        return named
    for folder in _script_folders():
        program = folder / "weir"
        if program.is_file():
            return str(program)
    found = shutil.which("weir")
    if found is None:
        raise FileNotFoundError("the program weir is not installed: pip install weir-rl, or name it by WEIR_BINARY")
    return found


def _script_folders() -> list[pathlib.Path]:
    """Where installers put scripts: those of this interpreter, of the user, and of pip install --target."""
    return [
        pathlib.Path(sysconfig.get_path("scripts")),
        pathlib.Path(sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user"))),
        pathlib.Path(__file__).parent.parent / "bin",
    ]
