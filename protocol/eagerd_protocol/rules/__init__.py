"""Rules: from the operands' shapes and dtypes and the parameters to those of the outputs.

A rule raises at once what the operation would raise; it never sees values. Where numpy itself can tell
(`ufunc.resolve_dtypes`, `np.result_type`, a call on one element), it is asked, so that there is one truth.
The first line of a rule's docstring is what the documentation says of its operations.
"""
