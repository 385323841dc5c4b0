"""Runs of many hours with correctness inside: resumable, and every token of them accounted for."""
