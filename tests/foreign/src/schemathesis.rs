//! schemathesis: tries an API against its OpenAPI document, MIT licence, from PyPI.

use super::python_environment;
use std::path::PathBuf;

const NAME: &str = "schemathesis-4.32.5";
const PACKAGE: &str = "schemathesis==4.32.5";

/// Returns the path of the program, installed in a virtual environment of its own.
pub fn program() -> PathBuf {
    python_environment(NAME, PACKAGE).join("bin/schemathesis")
}
