"""The enumerations of pyverbs, as `e`."""

try:
    import pyverbs.libibverbs_enums as e
except ImportError:  # before rdma-core 50
    import pyverbs.enums as e

__all__ = ["e"]
