"""Protocols, metrics, references and significance: a number is worth its protocol."""
