"""The module that the array API test suite tests: the namespace of a session, in the version it asks for."""

import os
import sys
from types import ModuleType
from typing import Any

from eagerd import EagerSession

_session = EagerSession(label="array-api-tests")
_namespace = _session.namespace.of_version(os.environ["ARRAY_API_TESTS_VERSION"])


class _NamespaceModule(ModuleType):
    def __getattr__(self, name: str) -> Any:
        return getattr(_namespace, name)

    def __dir__(self) -> list[str]:
        return dir(_namespace)


sys.modules[__name__].__class__ = _NamespaceModule
