"""Made by tools/generate_wire.py from the .proto files beside this folder. Do not edit."""
