//! Headless Chromium: the document of a page after its scripts ran, and pictures of it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// Seconds that one run may take.
const RUN_SECONDS_MAX: u64 = 90;
/// Milliseconds of the page's own time that are let pass.
const PAGE_MS: u32 = 6_000;

/// Why a page could not be looked at.
#[derive(Debug, thiserror::Error)]
pub enum BrowserError {
    /// There is no browser.
    #[error(
        "cannot look at the page: there is no chromium on this machine; install it with `apt-get install chromium`, or name one in SLUICE_CHROMIUM"
    )]
    Missing,
    /// It could not be run, or did not end well.
    #[error("chromium did not show {url}: {why}")]
    Failed {
        /// The page.
        url: String,
        /// What it said.
        why: String,
    },
}

/// How a page is looked at.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// Width and height of the window.
    pub size: (u32, u32),
    /// Which colours the person prefers.
    pub colours: Colours,
}

/// Which colours a person prefers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colours {
    /// Dark on light.
    Light,
    /// Light on dark.
    Dark,
}

/// A browser that was found.
#[derive(Debug, Clone)]
pub struct Browser {
    program: PathBuf,
}

impl Browser {
    /// Returns the browser of this machine.
    ///
    /// # Errors
    /// [`BrowserError::Missing`] with the words how to install it.
    pub fn find() -> Result<Self, BrowserError> {
        let named = std::env::var_os("SLUICE_CHROMIUM").map(PathBuf::from);
        let usual = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"]
            .map(PathBuf::from);
        let program = named
            .into_iter()
            .chain(usual)
            .find(|program| program.is_file())
            .ok_or(BrowserError::Missing)?;
        Ok(Self { program })
    }

    /// Returns the document of a page as it is after some seconds of the page's own time.
    ///
    /// # Errors
    /// When the browser fails.
    pub async fn document(&self, url: &str) -> Result<String, BrowserError> {
        let look = Look { size: (1280, 900), colours: Colours::Light };
        self.run(url, look, &["--dump-dom".to_owned()]).await
    }

    /// Takes a picture of a page.
    ///
    /// # Errors
    /// When the browser fails or leaves no picture.
    pub async fn picture(&self, url: &str, look: Look, file: &Path) -> Result<(), BrowserError> {
        let failed = |why: String| BrowserError::Failed { url: url.to_owned(), why };
        if file.exists() {
            std::fs::remove_file(file).map_err(|error| failed(error.to_string()))?;
        }
        self.run(url, look, &[format!("--screenshot={}", file.display())]).await?;
        let bytes = std::fs::metadata(file)
            .map_err(|error| failed(format!("it left no picture: {error}")))?
            .len();
        if bytes == 0 { Err(failed("its picture is empty".to_owned())) } else { Ok(()) }
    }

    async fn run(&self, url: &str, look: Look, task: &[String]) -> Result<String, BrowserError> {
        let failed = |why: String| BrowserError::Failed { url: url.to_owned(), why };
        let profile = tempfile::tempdir().map_err(|error| failed(error.to_string()))?;
        let (width, height) = look.size;
        let mut command = Command::new(&self.program);
        command
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
                "--hide-scrollbars",
            ])
            .args([
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(format!("--virtual-time-budget={PAGE_MS}"))
            .arg(format!("--window-size={width},{height}"));
        if look.colours == Colours::Dark {
            command.arg("--blink-settings=preferredColorScheme=0");
        }
        let child = command.args(task).arg(url).stdin(Stdio::null()).kill_on_drop(true).output();
        let output = tokio::time::timeout(Duration::from_secs(RUN_SECONDS_MAX), child).await;
        let output =
            output.map_err(|_| failed(format!("it did not end within {RUN_SECONDS_MAX} s")))?;
        let output = output.map_err(|error| failed(error.to_string()))?;
        if !output.status.success() {
            return Err(failed(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}
