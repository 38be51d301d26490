"""Faces for people and programs: the command line, the conformance runner."""
