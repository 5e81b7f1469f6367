//! zuul-client: the command line that Zuul's users have, Apache-2.0 licence, from PyPI. It encrypts
//! with the program `openssl`.

use super::python_environment;
use std::path::PathBuf;

const NAME: &str = "zuul-client-14.0.0";
const PACKAGE: &str = "zuul-client==14.0.0";

/// Returns the path of the program, installed in a virtual environment of its own.
pub fn program() -> PathBuf {
    python_environment(NAME, PACKAGE).join("bin/zuul-client")
}
