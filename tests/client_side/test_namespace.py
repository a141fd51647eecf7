"""The namespace against the standard's own list, which array-api-strict has: names, signatures, dtypes, results."""

import inspect
import itertools
from types import SimpleNamespace
from typing import Any

import array_api_strict as strict
import numpy as np
import pytest

from eagerd import dtype_functions
from eagerd.array import Array
from eagerd.namespace import API_VERSIONS, Namespace
from eagerd_protocol.catalogue import ALIASES, CATALOGUE, INDEXING, LOCAL_FUNCTIONS
from eagerd_protocol.dtypes import DTYPE_NAMES
from eagerd_protocol.errors import InvalidArgumentError, InvalidTypeError
from eagerd_protocol.operation import Operation

# eig and eigvals are in the standard's text, and missing in this list.
NAMES = {
    "": strict.__all__,
    "linalg.": [*strict.linalg.__all__, "eig", "eigvals"],
    "fft.": strict.fft.__all__,
}
NOT_OF_THE_STANDARD = {
    name for name in strict.__all__ if name.endswith(("_flags", "Flags")) or name in ("Device", "__version__")
}
OURS = {"special", "float16"}
DTYPES = [name for name in DTYPE_NAMES if name != "float16"]


def a_namespace() -> Namespace:
    """A namespace whose functions submit nothing: they return what they would submit."""
    session: Any = SimpleNamespace(run=lambda name, operands, given: (name, operands, given))
    session.namespace = Namespace(session)
    return session.namespace  # type: ignore[no-any-return]


def member(namespace: Any, name: str) -> Any:
    for part in name.split("."):
        namespace = getattr(namespace, part)
    return namespace


STANDARD = {prefix + name: member(strict, prefix + name) for prefix, names in NAMES.items() for name in names}
FUNCTIONS = {
    name: value for name, value in STANDARD.items() if inspect.isfunction(value) and name not in NOT_OF_THE_STANDARD
}


def shown(function: Any) -> list[tuple[str, Any, Any]]:
    """Names, kinds and defaults; an optional parameter that array-api-strict only tells from None has None."""
    parameters = [p for p in inspect.signature(function).parameters.values() if p.name != "self"]
    return [(p.name, p.kind, None if "Undef" in repr(p.default) else p.default) for p in parameters]


def test_the_namespace_has_what_the_standard_lists_and_nothing_else() -> None:
    xp = a_namespace()
    ours = set(dir(xp)) - OURS
    assert ours == {*strict.__all__, "linalg", "fft"} - NOT_OF_THE_STANDARD
    for name in ("linalg", "fft"):
        assert set(dir(getattr(xp, name))) == set(NAMES[f"{name}."])
    assert dir(xp.special) == ["erf"]


def test_the_catalogue_is_made_of_the_standard_and_named_extensions() -> None:
    rows = (CATALOGUE.keys() - INDEXING) | ALIASES.keys() | LOCAL_FUNCTIONS.keys()
    assert {name for name in rows if not name.startswith("special.")} == FUNCTIONS.keys()
    assert ALIASES.keys().isdisjoint(CATALOGUE)
    assert set(ALIASES.values()) <= CATALOGUE.keys()


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_signatures_are_those_of_the_standard(name: str) -> None:
    function = member(a_namespace(), name)
    assert shown(function) == shown(FUNCTIONS[name])
    assert function.__doc__


@pytest.mark.parametrize("name", LOCAL_FUNCTIONS)
def test_local_functions_have_the_signatures_of_the_catalogue(name: str) -> None:
    scope: dict[str, Any] = {}
    exec(f"def f{LOCAL_FUNCTIONS[name]}: ...", scope)
    assert shown(getattr(a_namespace(), name)) == shown(scope["f"])


def test_arrays_have_the_methods_of_the_standard() -> None:
    theirs = type(strict.asarray(1))
    public = {
        name
        for name in vars(theirs)
        if name not in ("__annotations__", "__buffer__", "__dict__", "__doc__", "__module__", "__new__", "__weakref__")
        and (not name.startswith("_") or name.startswith("__"))
    }
    assert public <= set(dir(Array))
    for name in ("__dlpack__", "__array_namespace__"):
        assert shown(getattr(Array, name)) == shown(getattr(theirs, name))


@pytest.mark.parametrize("operation", [o for o in CATALOGUE.values() if o.outputs], ids=lambda o: str(o.name))
def test_several_outputs_have_the_names_of_the_standard(operation: Operation) -> None:
    assert member(strict, operation.name)(strict.ones((2, 2)))._fields == operation.outputs


def test_constants_and_dtypes() -> None:
    xp = a_namespace()
    assert (xp.pi, xp.e, xp.inf, xp.newaxis) == (np.pi, np.e, np.inf, None)
    assert np.isnan(xp.nan)
    for name in DTYPES:
        dtype = getattr(xp, name)
        assert np.dtype(name) == dtype
        assert np.dtype(dtype).name == name
        assert dtype != None  # noqa: E711 - as np.dtype("float64") is not
        assert xp.isdtype(dtype, dtype)


def test_a_name_that_does_not_exist_is_told_with_its_neighbours() -> None:
    with pytest.raises(AttributeError, match=r"no 'linalg\.invert'; did you mean linalg\.inv"):
        _ = a_namespace().linalg.invert
    assert not hasattr(a_namespace(), "getitem")


@pytest.mark.parametrize("name", DTYPES)
def test_limits_of_dtypes_are_python_numbers(name: str) -> None:
    xp, dtype = a_namespace(), np.dtype(name)
    if dtype.kind in "fc":
        ours, theirs = xp.finfo(dtype), strict.finfo(getattr(strict, name))
        assert [type(v) for v in (ours.bits, ours.eps, ours.max, ours.min, ours.smallest_normal)] == [int] + [float] * 4
        assert (ours.eps, ours.max, ours.bits) == (float(theirs.eps), float(theirs.max), theirs.bits)
        with pytest.raises(InvalidTypeError, match="see finfo"):
            xp.iinfo(dtype)
    else:
        with pytest.raises(InvalidTypeError, match="see iinfo"):
            xp.finfo(dtype)
    if dtype.kind in "iu":
        limits = xp.iinfo(name)
        assert (limits.bits, limits.max, limits.min) == (dtype.itemsize * 8, np.iinfo(dtype).max, np.iinfo(dtype).min)


KINDS = ["bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating", "numeric"]


def test_kinds_of_dtypes_are_those_of_the_standard() -> None:
    for name, kind in itertools.product(DTYPES, KINDS):
        expected = strict.isdtype(getattr(strict, name), kind)
        assert dtype_functions.isdtype(np.dtype(name), kind) is expected, (name, kind)
    assert dtype_functions.isdtype(np.int8, ("real floating", np.dtype("int8")))
    with pytest.raises(InvalidArgumentError):
        dtype_functions.isdtype(np.int8, "floating")
    info = a_namespace().__array_namespace_info__()
    kinds: list[Any] = [*KINDS, ("bool", "integral"), None]
    for kind in kinds:
        assert info.dtypes(kind=kind).keys() == strict.__array_namespace_info__().dtypes(kind=kind).keys()


def test_dtypes_promote_as_the_standard_says_where_it_says() -> None:
    for a, b in itertools.product(DTYPES, DTYPES):
        try:
            expected = strict.result_type(getattr(strict, a), getattr(strict, b))
        except TypeError:
            continue  # the standard leaves it open
        assert dtype_functions.result_type(np.dtype(a), np.dtype(b)).name == str(expected).rpartition(".")[2]
        assert dtype_functions.can_cast(a, b) == strict.can_cast(getattr(strict, a), getattr(strict, b)), (a, b)
    assert dtype_functions.result_type(np.float32, 1.5) == np.float32
    assert dtype_functions.result_type(np.int8, 1j) == np.complex128
    for wrong in ((), (1, 2.0)):
        with pytest.raises((InvalidArgumentError, InvalidTypeError)):
            dtype_functions.result_type(*wrong)


def test_shapes_broadcast_without_arrays() -> None:
    assert dtype_functions.broadcast_shapes((2, 1), (3,), ()) == (2, 3)
    assert dtype_functions.broadcast_shapes() == ()
    for wrong, error in [
        (((2,), (3,)), InvalidArgumentError),
        (((2, None),), InvalidArgumentError),
        ((3,), InvalidTypeError),
    ]:
        with pytest.raises(error):
            dtype_functions.broadcast_shapes(*wrong)  # type: ignore[arg-type]


def test_older_versions_of_the_standard_can_be_asked_for() -> None:
    xp = a_namespace()
    assert xp.__array_api_version__ == API_VERSIONS[-1] == "2025.12"
    assert xp.of_version(None) is xp.of_version("2025.12") is xp
    older = xp.of_version("2024.12")
    assert older is xp.of_version("2024.12")
    assert older.__array_api_version__ == "2024.12"
    assert (older.__array_namespace_info__().devices(), xp.__array_namespace_info__().devices()) == (["cpu"], ("cpu",))
    assert type(older.meshgrid()) is list
    for wrong in ("2020.12", "2026.12", "new"):
        with pytest.raises(InvalidArgumentError, match=r"known are 2021\.12"):
            xp.of_version(wrong)
