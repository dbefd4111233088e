"""VQF, the weight file of the Kestrel engine: structs, geometry, reader, audit."""
