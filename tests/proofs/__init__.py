"""Lemmas on arithmetic of csrc, proved by z3 for all values (docs/verification.md).

A formula of this package repeats the arithmetic of one C function on bit vectors. A lemma is a
claim about the formula. Each lemma has twins: formulas with a plausible error, for which z3 must
find a counterexample. tests/unit/test_lemmas.py also evaluates each formula on concrete values and
compares the result with the C function's.
"""
