"""Check whether the user's code refers to a method by name, in which case it may be called."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Collection, Iterable, Iterator
from types import CodeType, FrameType, FunctionType, ModuleType

from ludus.core.authors import is_of_user

_BY_NAME = {"getattr", "hasattr", "methodcaller", "attrgetter"}


def is_mentioned(name: str, classes: Collection[type]) -> bool:
    """Return whether these classes, or any loaded module of the user's, refer to this attribute.

    References inside the method itself and `super().<name>` do not count. A method on the call stack does.
    """
    own = [code for cls in classes for code in codes_of(vars(cls).get(name))]
    frames = [*_frames()]
    if any(frame.f_code in own for frame in frames):
        return True
    others = [value for cls in classes for key, value in vars(cls).items() if key != name]
    if any(name in code.co_names for value in others for code in codes_of(value)):
        return True
    return any(
        _speaks(module, name, classes, frames)
        for module in modules_of_user({cls.__module__.partition(".")[0] for cls in classes})
    )


def modules_of_user(packages: Collection[str]) -> list[ModuleType]:
    """Return the loaded modules that are the user's or belong to one of these packages."""
    return [
        module
        for key, module in list(sys.modules.items())
        if isinstance(module, ModuleType)
        and (key.partition(".")[0] in packages or key == "__main__" or is_of_user(key))
    ]


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _speaks(
    module: ModuleType, name: str, classes: Collection[type], frames: Iterable[FrameType]
) -> bool:
    try:
        source = inspect.getsource(module)
        tree = ast.parse(source) if name in source else None
    except (OSError, TypeError, SyntaxError, ValueError):
        # An interactive prompt keeps no source, but the code it runs now can be read.
        codes = [frame.f_code for frame in frames if frame.f_globals is vars(module)]
        functions = [value for value in vars(module).values() if isinstance(value, FunctionType)]
        codes += [code for function in functions for code in codes_of(function)]
        return any(name in code.co_names for code in codes)
    if tree is None:
        return False
    here = {cls.__name__ for cls in classes if cls.__module__ == module.__name__}
    nodes = [*_nodes(tree, name, here)]
    calls = [node for node in nodes if isinstance(node, ast.Call) and _called(node) in _BY_NAME]
    is_computed = any(_called(call) == "getattr" and not _says(call) for call in calls)
    return (
        any(isinstance(node, ast.Attribute) and _is_use(node, name) for node in nodes)
        or any(name in _says(call) for call in calls)
        or (is_computed and any(isinstance(n, ast.Constant) and n.value == name for n in nodes))
    )


def _nodes(tree: ast.AST, name: str, classes: Collection[str]) -> Iterator[ast.AST]:
    """Yield all nodes of the tree except the methods of this name in the classes of these names."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        is_class = isinstance(node, ast.ClassDef) and node.name in classes
        waiting += [
            child
            for child in ast.iter_child_nodes(node)
            if not (
                is_class
                and isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
                and child.name == name
            )
        ]


def _is_use(node: ast.Attribute, name: str) -> bool:
    is_of_super = isinstance(node.value, ast.Call) and _called(node.value) == "super"
    return node.attr == name and isinstance(node.ctx, ast.Load) and not is_of_super


def _called(call: ast.Call) -> str:
    function = call.func
    return str(getattr(function, "id", None) or getattr(function, "attr", ""))


def _says(call: ast.Call) -> list[object]:
    """Return the string arguments of a call."""
    found = [one.value for one in call.args if isinstance(one, ast.Constant)]
    return [value for value in found if isinstance(value, str)]


def codes_of(value: object) -> Iterator[CodeType]:
    """Yield the code objects of a method or property, and of the functions nested in it."""
    if isinstance(value, property):
        for part in (value.fget, value.fset):
            yield from codes_of(part)
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    if isinstance(value, FunctionType):
        value = inspect.unwrap(value)  # `prepare` and `plan` are wrapped by the library itself
    waiting = [value.__code__] if isinstance(value, FunctionType) else []
    while waiting:
        code = waiting.pop()
        yield code
        waiting += [one for one in code.co_consts if isinstance(one, CodeType)]
