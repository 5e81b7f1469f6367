//! Runs headless Chromium: returns a page's document after its scripts ran, or a screenshot.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// The timeout of one run of the browser, in seconds.
const RUN_SECONDS_MAX: u64 = 90;
/// The virtual time that a page gets, in milliseconds.
pub const PAGE_MS: u32 = 6_000;

/// Why a page could not be rendered.
#[derive(Debug, thiserror::Error)]
pub enum BrowserError {
    /// No browser is installed.
    #[error(
        "could not render the page: chromium is not installed; install it with `apt-get install chromium`, or name one in SLUICE_CHROMIUM"
    )]
    Missing,
    /// The browser could not be started, or failed.
    #[error("chromium could not render {url}: {why}")]
    Failed {
        /// The address of the page.
        url: String,
        /// The error output.
        why: String,
    },
}

/// The window in which a page is rendered.
#[derive(Debug, Clone, Copy)]
pub struct Viewport {
    /// The width and height of the window.
    pub size: (u32, u32),
    /// The user's preferred colour scheme.
    pub colours: Colours,
}

/// A preferred colour scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colours {
    /// Dark on light.
    Light,
    /// Light on dark.
    Dark,
}

/// The browser of this machine.
#[derive(Debug, Clone)]
pub struct Browser {
    program: PathBuf,
}

impl Browser {
    /// Finds the browser.
    ///
    /// # Errors
    /// [`BrowserError::Missing`], which says how to install one.
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

    /// Returns the document of a page after its scripts ran.
    ///
    /// # Errors
    /// When the browser fails.
    pub async fn document(&self, url: &str) -> Result<String, BrowserError> {
        let viewport = Viewport { size: (1280, 900), colours: Colours::Light };
        self.run(url, viewport, &["--dump-dom".to_owned()]).await
    }

    /// Takes a screenshot of a page.
    ///
    /// # Errors
    /// When the browser fails or writes no screenshot.
    pub async fn screenshot(
        &self,
        url: &str,
        viewport: Viewport,
        file: &Path,
    ) -> Result<(), BrowserError> {
        let failed = |why: String| BrowserError::Failed { url: url.to_owned(), why };
        if file.exists() {
            std::fs::remove_file(file).map_err(|error| failed(error.to_string()))?;
        }
        self.run(url, viewport, &[format!("--screenshot={}", file.display())]).await?;
        let bytes = std::fs::metadata(file)
            .map_err(|error| failed(format!("it wrote no screenshot: {error}")))?
            .len();
        if bytes == 0 { Err(failed("the screenshot is empty".to_owned())) } else { Ok(()) }
    }

    async fn run(
        &self,
        url: &str,
        viewport: Viewport,
        task: &[String],
    ) -> Result<String, BrowserError> {
        let failed = |why: String| BrowserError::Failed { url: url.to_owned(), why };
        let profile = tempfile::tempdir().map_err(|error| failed(error.to_string()))?;
        let (width, height) = viewport.size;
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
        if viewport.colours == Colours::Dark {
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
