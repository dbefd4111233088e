"""UQFF, the quantized weights of mistral.rs: naming, families, reader, slicing, report, audit."""
