"""Recurrent translation models with the attention of Bahdanau et al. (2015) and Luong et al. (2015)."""

__version__ = "0.1.0"
