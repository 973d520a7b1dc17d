//! The settings that a test chooses, as lines of `key=value`.

use std::time::Duration;

/// How memory that is not pinned is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pageable {
    /// Before the call returns.
    Sync,
    /// To a device: staged before the call returns, then asynchronous. From a device: before the call
    /// returns.
    Staged,
}

#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// `devices`: the number of devices.
    pub(crate) devices: usize,
    /// `memory`: bytes of each device.
    pub(crate) memory_bytes: usize,
    /// `pinned`: bytes that may be pinned in all.
    pub(crate) pinned_bytes: usize,
    /// `op_us`: how long each operation takes, whatever its size.
    pub(crate) op: Duration,
    /// `ns_per_kib`: additional time for each KiB copied.
    pub(crate) ns_per_kib: u64,
    /// `jitter_us`: the upper limit of additional random time.
    pub(crate) jitter_us: u64,
    /// `seed`: the seed of the jitter.
    pub(crate) seed: u64,
    /// `checksums`: whether pinned memory that is copied is watched, 0 or 1. It costs two reads of each byte.
    pub(crate) checksums: bool,
    /// `pageable`: `sync` or `staged`.
    pub(crate) pageable: Pageable,
    /// `driver_version`: the result of cuDriverGetVersion.
    pub(crate) driver_version: i32,
    /// `pools`: whether devices report memory pools.
    pub(crate) pools: i32,
    /// `release_ms`: how long cuDevicePrimaryCtxRelease takes, at its end.
    pub(crate) release: Duration,
    /// `capability`: compute capability, major * 10 + minor.
    pub(crate) capability: i32,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            devices: 1,
            memory_bytes: 256 << 20,
            pinned_bytes: 1 << 30,
            op: Duration::ZERO,
            ns_per_kib: 0,
            jitter_us: 0,
            seed: 1,
            checksums: true,
            pageable: Pageable::Sync,
            driver_version: 12080,
            pools: 1,
            release: Duration::ZERO,
            capability: 90,
        }
    }
}

impl Config {
    /// The default, changed by the environment variable `STANDIN_DRIVER`, whose lines end with `;`.
    pub(crate) fn from_environment() -> Config {
        let mut config = Config::default();
        if let Ok(text) = std::env::var("STANDIN_DRIVER") {
            config
                .read(&text.replace(';', "\n"))
                .unwrap_or_else(|problem| panic!("STANDIN_DRIVER: {problem}"));
        }
        config
    }

    /// Changes the settings in these lines.
    pub(crate) fn read(&mut self, text: &str) -> Result<(), String> {
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (key, value) = line.split_once('=').ok_or_else(|| format!("no `=` in {line:?}"))?;
            self.set(key.trim(), value.trim()).ok_or_else(|| format!("not understood: {line:?}"))?;
        }
        Ok(())
    }

    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "devices" => self.devices = value.parse().ok().filter(|&devices| devices <= 16)?,
            "memory" => self.memory_bytes = value.parse().ok()?,
            "pinned" => self.pinned_bytes = value.parse().ok()?,
            "op_us" => self.op = Duration::from_micros(value.parse().ok()?),
            "ns_per_kib" => self.ns_per_kib = value.parse().ok()?,
            "jitter_us" => self.jitter_us = value.parse().ok()?,
            "seed" => self.seed = value.parse().ok()?,
            "checksums" => self.checksums = value.parse::<u8>().ok()? != 0,
            "pageable" => {
                self.pageable = match value {
                    "sync" => Pageable::Sync,
                    "staged" => Pageable::Staged,
                    _ => return None,
                }
            }
            "driver_version" => self.driver_version = value.parse().ok()?,
            "pools" => self.pools = value.parse().ok()?,
            "release_ms" => self.release = Duration::from_millis(value.parse().ok()?),
            "capability" => self.capability = value.parse().ok()?,
            _ => return None,
        }
        Some(())
    }

    /// How long the next operation takes, which moves this many bytes.
    pub(crate) fn delay(&mut self, bytes: usize) -> Duration {
        let kib = u64::try_from(bytes.div_ceil(1024)).unwrap_or(u64::MAX);
        let jitter_us = if self.jitter_us == 0 { 0 } else { self.random() % (self.jitter_us + 1) };
        self.op + Duration::from_nanos(kib.saturating_mul(self.ns_per_kib)) + Duration::from_micros(jitter_us)
    }

    /// SplitMix64.
    fn random(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.seed ^ (self.seed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}
