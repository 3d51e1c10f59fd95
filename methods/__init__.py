"""What is trained: one file a method. Knows no dataset, no split, no file on disk."""

from methods.method import Method, MethodError, NoSettings, Objective, Step, near, setting
from methods.registry import Entry, code_of, create, get, load_plugin, names, register, select

__all__ = ["Entry", "Method", "MethodError", "NoSettings", "Objective", "Step", "code_of", "create", "get",
           "load_plugin", "names", "near", "register", "select", "setting"]
