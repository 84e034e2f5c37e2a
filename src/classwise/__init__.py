"""classwise: class-by-class adversarial robustness."""

__version__ = "0.1.0"
