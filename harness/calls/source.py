"""Where a function is: `FILE:FUNCTION` or `MODULE:FUNCTION`, with `()` behind it for a factory, `NAME=` in front. Or
what is timed in its place, in a fresh process each time: `cmd:COMMAND`, or an `import:MODULE`."""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.machinery import PathFinder
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from llama_workbench.variants.outside import OutsideVariantError, function_of, look_for

from .command import IMPORT, PREFIX

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")

EXAMPLE = "for example mine.py:encode, mypackage.text:encode, or new=mine.py:make_encoder() for a factory"


class SourceError(OutsideVariantError):
    """A function that cannot be had: the message names the text, what is wrong and the fix."""


@dataclass(frozen=True)
class Source:
    """A function in a file or in a module, or a command."""

    name: str  # what reports call it
    where: str  # an absolute path, or the name of a module
    function: str
    factory: bool = False  # the function makes the one that is called, anew for each round
    folder: str = ""  # where that module is looked for when it is not installed
    revision: str = ""  # of which revision the files are, where they are no files of the working tree
    commit: str = ""  # its full name
    environment: str = ""  # the Python that it runs in, where that is another one than this
    command: str = ""  # in place of a function: the words of a command, as in a shell, or import:MODULE
    given: str = ""  # the command as the user wrote it
    variables: Mapping[str, str] = field(default_factory=dict, hash=False)  # of its environment, that are its own
    options: str = ""  # of its interpreter, that are its own, as in a shell
    size: int = 0  # of an input generator: that of its inputs, which it is given; 0: it is given none

    @property
    def is_file(self) -> bool:
        """Whether it is in a file of its own, and not in a module that is imported by name."""
        return self.where.endswith(".py")

    @property
    def is_alone(self) -> bool:
        """Whether it needs a process that has nothing of another side: a command begins one itself."""
        own = bool(self.variables or self.options) and (not self.command or bool(self.module))
        return own or bool(self.environment)

    @property
    def module(self) -> str:
        """What is imported, where an import is timed in place of a function; else empty."""
        return self.command.removeprefix(IMPORT) if self.command.startswith(IMPORT) else ""

    @property
    def shown(self) -> str:
        """As a user would write it, without folders."""
        if self.command:
            return self.given
        where = Path(self.where).name if self.is_file else self.where
        at = f"@{self.revision}" if self.revision else ""
        return f"{where}:{self.function}{'()' if self.factory else ''}{at}"

    @property
    def again(self) -> str:
        """As a user gives it again, without folders: under the same name, of the same commit."""
        name = "" if self.name == (self.function or self.home) and not self.commit else f"{self.name}="
        at = f"@{self.commit}" if self.commit else ""
        return f"{name}{replace(self, revision='').shown}{at}"

    @property
    def kind(self) -> str:
        """What it is, in a word."""
        return ("import" if self.module else "command") if self.command else "function"

    @property
    def renamed(self) -> str:
        """How it is given another name."""
        return shlex.quote(f"NAME={self.given}") if self.command else "NAME=FILE:FUNCTION"

    @property
    def folders(self) -> tuple[str, ...]:
        """Where its module, and those that this imports from beside it, are looked for."""
        if not self.folder:
            return ()
        beside = (str(Path(self.where).parent),) if self.is_file else ()
        return (*beside, self.folder, f"{self.folder}/src")

    @property
    def file(self) -> Path | None:
        """The file that it is in; None of a module that is in none of its folders, such as an installed one."""
        if self.is_file:
            return Path(self.where)
        for folder in self.folders:
            module = Path(folder, *self.where.split("."))
            for file in (module / "__init__.py", module.with_name(f"{module.name}.py")):
                if file.is_file():
                    return file
        return None

    @property
    def home(self) -> str:
        """The file, module or program in one word."""
        if self.command:
            return self.module or Path(shlex.split(self.command)[0]).name
        return Path(self.where).stem if self.is_file else self.where.rpartition(".")[2]


def parse(text: str, *, option: str, folder: Path | None = None, elsewhere: bool = False) -> Source:
    """The source that a text names. Files and modules are looked for in `folder` (the current one), and nothing is run.
    option: where the text stands, for messages. elsewhere: a module may be installed in another environment than this
    one. Raises SourceError."""
    folder = (folder or Path.cwd()).resolve()
    name, equals, rest = text.partition("=")
    if not equals or not NAME.fullmatch(name):
        name, rest = "", text  # a path may have a "=" in it
    if rest.startswith((PREFIX, IMPORT)):
        return _command(rest, name, option)
    where, colon, function = rest.rpartition(":")
    factory = function.endswith("()")
    function = function.removesuffix("()")
    given = f"{option} {text!r}"
    if not where or not colon or not function.isidentifier():
        missing = "" if colon or (folder / rest).exists() else "there is no file or folder of this name; "
        raise SourceError(f"{given}: {missing}expected FILE:FUNCTION or MODULE:FUNCTION, {EXAMPLE}")
    if where.endswith(".py"):
        path = folder / Path(where).expanduser()
        if not path.is_file():
            raise SourceError(f"{given}: there is no file {where!r} (looked in {folder.name}/)")
        look_for(path, function)
        where = str(path.resolve())
    elif not all(part.isidentifier() for part in where.split(".")):
        raise SourceError(f"{given}: {where!r} is neither a .py file nor the name of a module")
    elif not elsewhere and not PathFinder.find_spec(
        top := where.partition(".")[0], [str(folder), f"{folder}/src", *sys.path]
    ):
        raise SourceError(f"{given}: no module {top!r}, neither installed nor in {folder.name}/")
    return Source(name or function, where, function, factory, str(folder))


def _command(given: str, name: str, option: str) -> Source:
    """The side that a command is, or an import. Raises SourceError where there is no such program, or module."""
    if given.startswith(IMPORT):
        module = given.removeprefix(IMPORT)
        if not all(part.isidentifier() for part in module.split(".")):
            raise SourceError(f"{option} {given!r}: {module!r} is not the name of a module")
        return Source(name or module, "", "", command=given, given=given)
    command = given.removeprefix(PREFIX).strip()
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise SourceError(f"{option} {given!r}: {error}") from None
    if not words:
        expected = f"expected a command behind {PREFIX}, for example {PREFIX}'jq . data.json'"
        raise SourceError(f"{option} {given!r}: {expected}")
    if shutil.which(words[0]) is None:
        raise SourceError(f"{option} {given!r}: there is no program {words[0]!r} on the PATH")
    return Source(name or Path(words[0]).name, "", "", command=command, given=given)


def is_command(text: str, begins: tuple[str, ...] = (PREFIX, IMPORT)) -> bool:
    """Whether a text names a command, or an import, in place of a function: how that begins."""
    return text.startswith(begins) or text.partition("=")[2].startswith(begins)


def source_of(function: Callable[..., Any], what: str) -> Source:
    """Where a function is that another process must find. what: what it is for, for messages. Raises SourceError."""
    name, module = getattr(function, "__qualname__", ""), sys.modules.get(getattr(function, "__module__", None) or "")
    if not name.isidentifier() or getattr(module, name, None) is not function:
        why = f"{what} {name or repr(function)}: another process must find it: define it with def at the top of a file"
        raise SourceError(f"{why}, or write FILE:FUNCTION() for what a factory makes")
    assert module is not None
    file = getattr(module, "__file__", None)
    if file and file.endswith(".py") and not module.__package__:
        return Source(name, str(Path(file).resolve()), name, folder=str(Path.cwd()))
    if module.__name__ == "__main__":
        raise SourceError(f"{what} {name}: it is in no file: write it into one and give FILE:FUNCTION")
    top = sys.modules[module.__name__.partition(".")[0]]
    folder = str(Path(top.__file__).resolve().parents[1]) if top.__file__ else ""
    return Source(name, module.__name__, name, folder=folder)


def named_apart(sources: Iterable[Source], taken: Iterable[str] = ()) -> list[Source]:
    """The sources under names that differ: where two have one name, or it is `taken`, the file's name comes in front.
    Raises SourceError where that is not enough."""
    every = list(sources)
    names = [source.name for source in every]
    clash = {name for name in names if names.count(name) > 1} | set(taken)
    every = [
        replace(source, name=f"{source.home}.{source.name}") if source.name in clash else source for source in every
    ]
    names = [source.name for source in every]
    for source in every:
        if names.count(source.name) > 1:
            raise SourceError(
                f"{source.shown}: two {source.kind}s are called {source.name}: give one a name, {source.renamed}"
            )
    return every


def function_in(module: ModuleType, source: Source) -> Callable[..., Any]:
    """What the module has under the source's name. Raises OutsideVariantError."""
    return function_of(module, source.function, source.shown.rpartition(":")[0])


# Functions from a notebook's cells, written into a file, so that another process can import them.


PLAIN = (int, float, complex, str, bytes, bool, type(None))


def in_no_file(function: Any) -> bool:
    """Whether a function was defined in a notebook or at a prompt. Jupyter's kernel calls its cells after `.py` files,
    which there are none of."""
    if not isinstance(function, FunctionType):
        return False
    file = inspect.getfile(function)
    return not (file.endswith(".py") and Path(file).is_file())


def written(functions: list[Callable[..., Any]]) -> str:
    """Python that defines these functions, and what they use: imports, other functions, classes and constants. Raises
    SourceError, which names what cannot be written."""
    text = _Text([], [], {})
    for function in functions:
        text.add(function.__name__, function, function.__name__)
    return "\n".join([*text.imports, "", *text.definitions])


@dataclass
class _Text:
    imports: list[str]
    definitions: list[str]
    done: dict[str, Any]

    def add(self, name: str, value: Any, function: str) -> None:
        """Define `name`, which `function` uses. What the definition itself uses comes first."""
        if self.done.get(name, self) is value:
            return
        self.done[name] = value
        if isinstance(value, ModuleType):
            self.imports.append(f"import {value.__name__}" + (f" as {name}" if name != value.__name__ else ""))
        elif isinstance(value, (FunctionType, type)) and value.__module__ not in (None, "__main__"):
            self.imports.append(f"from {value.__module__} import {value.__qualname__} as {name}")
        elif isinstance(value, (FunctionType, type)):
            if isinstance(value, FunctionType) and value.__closure__:
                raise SourceError(f"{name} is defined within another function: define it at the top")
            if not (source := _source(value)):
                raise SourceError(f"{name}: its source is not known: write it into a file and give FILE:FUNCTION")
            for used, held in _used_by(value):
                self.add(used, held, name)
            self.definitions += [source, ""]
        elif _is_plain(value):
            self.definitions.append(f"{name} = {value!r}")
        elif (module := getattr(value, "__module__", None)) and module != "__main__" and callable(value):
            self.imports.append(f"from {module} import {value.__name__} as {name}")
        else:
            kind = type(value).__name__
            raise SourceError(
                f"{function} uses {name}, a {kind}, which another process does not have: make it in the payload "
                "function, or write both into a file and give FILE:FUNCTION"
            )


def _source(value: Any) -> str:
    """The text of a function or class that was defined at the top of a cell; empty where it is not known."""
    held = [value] if isinstance(value, FunctionType) else vars(value).values()
    files = [each.__code__.co_filename for each in held if isinstance(each, FunctionType)]
    text = "".join(linecache.getlines(files[0])) if files else ""
    try:
        nodes = ast.parse(text).body
    except SyntaxError:
        return ""
    for node in reversed(nodes):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == value.__name__:
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            return "\n".join(text.splitlines()[first - 1 : node.end_lineno])
    return ""


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_is_plain(key) and _is_plain(each) for key, each in value.items())
    if type(value) in (list, tuple, set, frozenset):
        return all(map(_is_plain, value))
    return type(value) in PLAIN


def _used_by(value: Any) -> Iterator[tuple[str, Any]]:
    """Global names that a function or class uses, as far as they are defined."""
    functions = (
        [value] if isinstance(value, FunctionType) else [f for f in vars(value).values() if inspect.isfunction(f)]
    )
    for base in getattr(value, "__bases__", ()):
        if base is not object:
            yield base.__name__, base
    for function in functions:
        for name in sorted(_names(function.__code__)):
            if name in function.__globals__ and not hasattr(builtins, name):
                yield name, function.__globals__[name]


def _names(code: CodeType) -> set[str]:
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return {*code.co_names}.union(*map(_names, inner))
