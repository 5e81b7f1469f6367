//! Decides whether an executor takes more builds, by what its machine has left (Z7.3).
//!
//! An executor that lacks memory, disk space or processor time leaves builds to other executors. Its
//! running builds go on.

use rustix::fs::statvfs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a machine must have left for another build.
#[derive(Debug, Clone, PartialEq)]
pub struct AdmissionLimits {
    /// The minimum of available memory, in percent of all memory.
    pub memory_min_percent: u8,
    /// The minimum of free space on the disk of the build directories, in percent of the disk.
    pub disk_min_percent: u8,
    /// The maximum load average of the last minute, per processor; `None` for no limit. It counts
    /// the load of other programs too.
    pub load_max: Option<f64>,
    /// The maximum number of builds that prepare their workspace at once.
    pub starting_max: usize,
}

impl Default for AdmissionLimits {
    /// Returns limits for a machine that may run other programs too: 5 % of memory and disk, no
    /// limit of the load, and twice as many starting builds as processors, at least 4.
    fn default() -> Self {
        Self {
            memory_min_percent: 5,
            disk_min_percent: 5,
            load_max: None,
            starting_max: (2 * processors()).max(4),
        }
    }
}

/// What a machine has left.
#[derive(Debug, Clone, PartialEq)]
pub struct Readings {
    /// Available memory in percent; `None` if it cannot be read.
    pub memory_percent: Option<u8>,
    /// Free disk space in percent; `None` if it cannot be read.
    pub disk_percent: Option<u8>,
    /// The load average of the last minute, per processor; `None` if it cannot be read.
    pub load: Option<f64>,
    /// The number of builds that prepare their workspace.
    pub starting: usize,
}

impl Readings {
    /// Reads memory and load of this machine, and the disk that holds the directory `state`.
    pub fn take(state: &Path, starting: &StartingBuilds) -> Self {
        let memory = std::fs::read_to_string("/proc/meminfo").ok();
        let load = std::fs::read_to_string("/proc/loadavg").ok();
        let load = load.as_deref().and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
        let disk = statvfs(state).ok();
        Self {
            memory_percent: memory.as_deref().and_then(available_memory_percent),
            disk_percent: disk.and_then(|disk| percent(disk.f_bavail, disk.f_blocks)),
            load: load.map(|load| load / processors() as f64),
            starting: starting.count(),
        }
    }
}

impl AdmissionLimits {
    /// Returns whether the disk has too little space left.
    pub fn lacks_disk(&self, readings: &Readings) -> bool {
        readings.disk_percent.is_some_and(|free| free < self.disk_min_percent)
    }

    /// Returns why a machine takes no further build, as a phrase for the log; `None` if it takes
    /// one. What cannot be read is no obstacle.
    pub fn obstacle(&self, readings: &Readings) -> Option<String> {
        if let Some(free) = readings.memory_percent.filter(|free| *free < self.memory_min_percent) {
            return Some(format!(
                "{free} % of memory is available, less than {} %",
                self.memory_min_percent
            ));
        }
        if let Some(free) = readings.disk_percent.filter(|_| self.lacks_disk(readings)) {
            return Some(format!(
                "{free} % of the disk is free, less than {} %",
                self.disk_min_percent
            ));
        }
        if let (Some(load), Some(most)) = (readings.load, self.load_max)
            && load > most
        {
            return Some(format!("the load is {load:.1} per processor, more than {most}"));
        }
        (readings.starting >= self.starting_max)
            .then(|| format!("{} builds prepare their workspace, the maximum", readings.starting))
    }
}

/// Counts the builds that prepare their workspace.
#[derive(Debug, Default)]
pub struct StartingBuilds(Arc<AtomicUsize>);

impl StartingBuilds {
    /// Counts one more build, until the returned value is dropped.
    pub fn enter(&self) -> StartingBuild {
        self.0.fetch_add(1, Ordering::AcqRel);
        StartingBuild(Arc::clone(&self.0))
    }

    /// Counts one more build as [`Self::enter`] does; `None` if there are `most` already.
    pub fn try_enter(&self, most: usize) -> Option<StartingBuild> {
        let more = |count| (count < most).then_some(count + 1);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(StartingBuild(Arc::clone(&self.0)))
    }

    /// Returns the number of builds.
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}

/// One build that prepares its workspace.
#[derive(Debug)]
pub struct StartingBuild(Arc<AtomicUsize>);

impl Drop for StartingBuild {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Returns the number of processors that this process may use.
fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Returns the available memory in percent, from the text of `/proc/meminfo`.
fn available_memory_percent(text: &str) -> Option<u8> {
    let of = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    percent(of("MemAvailable")?, of("MemTotal")?)
}

/// Returns `part` in percent of `whole`, rounded down; `None` if `whole` is 0.
fn percent(part: u64, whole: u64) -> Option<u8> {
    let percent = u128::from(part) * 100;
    u8::try_from(percent.checked_div(u128::from(whole))?.min(100)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z7.3
    #[test]
    fn an_executor_takes_no_build_for_which_its_machine_has_no_room() {
        let limits = AdmissionLimits {
            memory_min_percent: 5,
            disk_min_percent: 10,
            load_max: Some(2.5),
            starting_max: 2,
        };
        let readings = |memory, disk, load, starting| Readings {
            memory_percent: memory,
            disk_percent: disk,
            load,
            starting,
        };
        for (readings, expected) in [
            (readings(Some(5), Some(10), Some(2.5), 1), None),
            (readings(None, None, None, 0), None),
            (readings(Some(4), Some(50), Some(0.1), 0), Some("4 % of memory")),
            (readings(Some(50), Some(9), Some(0.1), 0), Some("9 % of the disk")),
            (readings(Some(50), Some(50), Some(2.6), 0), Some("load is 2.6")),
            (readings(Some(50), Some(50), Some(0.1), 2), Some("2 builds prepare")),
        ] {
            let found = limits.obstacle(&readings);
            assert_eq!(found.is_some(), expected.is_some(), "{readings:?}: {found:?}");
            assert!(found.unwrap_or_default().contains(expected.unwrap_or_default()));
        }
        let unlimited = AdmissionLimits { load_max: None, ..limits };
        assert_eq!(unlimited.obstacle(&readings(Some(50), Some(50), Some(99.0), 0)), None);
    }

    /// Z7.3
    #[test]
    fn the_machine_can_be_read() {
        let text = "MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:    57 kB\n";
        assert_eq!(available_memory_percent(text), Some(5));
        assert_eq!(available_memory_percent("nothing"), None);
        assert_eq!((percent(1, 0), percent(u64::MAX, 1)), (None, Some(100)));
        let starting = StartingBuilds::default();
        let one = starting.enter();
        let readings = Readings::take(Path::new("/"), &starting);
        assert!(readings.memory_percent.is_some() && readings.disk_percent.is_some());
        assert!(readings.load.is_some());
        assert_eq!(readings.starting, 1);
        drop(one);
        assert_eq!(starting.count(), 0);
    }
}
