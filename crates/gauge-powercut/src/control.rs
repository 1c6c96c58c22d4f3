//! The socket that takes commands: one JSON object per line, one answer per line (docs/powercut.md).

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::Duration;

use fuser::{INodeNo, Notifier};
use gauge_load::clock::monotonic_ns;
use glob::Pattern;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::accounts::Deed;
use crate::disk::{Disk, Metadata};
use crate::hold::Place;
use crate::lock;
use crate::rules::{Rule, Rules};
use crate::survive::{BLOCK_BYTES_MAX, SECTOR_BYTES, Survive};
use crate::syncs::Syncs;
use crate::tree::ROOT;

/// The longest line that is taken, bytes.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// Which share of the un-synced sectors survives a random cut that does not say.
const KEEP_DEFAULT: f64 = 0.5;

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SurviveName {
    #[default]
    None,
    All,
    Prefix,
    Torn,
    Random,
    Versions,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Names {
    #[default]
    None,
    All,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FaultRule {
    glob: String,
    sync_delay_ms: Option<f64>,
    sync_error: Option<String>,
    #[serde(default)]
    sync_drops: bool,
    times: Option<u64>,
    write_error: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
enum Command {
    Status {},
    Cut {
        #[serde(default)]
        survive: SurviveName,
        keep: Option<f64>,
        block_bytes: Option<u64>,
        #[serde(default)]
        seed: u64,
        #[serde(default)]
        names: Names,
    },
    Find {
        hex: String,
    },
    Hold {
        glob: String,
        at: String,
        #[serde(default = "first")]
        count: u64,
    },
    Release {},
    Metadata {
        model: String,
    },
    PowerOn {},
    Sync {},
    Fault {
        rules: Vec<FaultRule>,
    },
    Limit {
        bytes: Option<u64>,
    },
    Accounts {
        #[serde(default)]
        since: usize,
    },
    Stop {},
}

fn first() -> u64 {
    1
}

type Answer = Result<Map<String, Value>, String>;

/// What commands act on.
pub struct Control {
    /// The disk.
    pub disk: Arc<Disk>,
    /// Syncs that are under way.
    pub syncs: Syncs,
    /// Tells the kernel what to forget.
    pub notifier: Notifier,
    /// Where it is mounted.
    pub mount: PathBuf,
    /// Rules of faults, as they were given.
    pub rules: std::sync::Mutex<Value>,
    /// Delay of every sync without a rule of its own.
    pub sync_delay: Duration,
    /// Unmounts, cleans up and ends the process.
    pub stop: Arc<dyn Fn() + Send + std::marker::Sync>,
}

fn fields(value: impl serde::Serialize) -> Map<String, Value> {
    match serde_json::to_value(value) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

fn error_number(name: &str) -> Result<i32, String> {
    match name {
        "EIO" => Ok(libc::EIO),
        "ENOSPC" => Ok(libc::ENOSPC),
        "EDQUOT" => Ok(libc::EDQUOT),
        "EROFS" => Ok(libc::EROFS),
        _ => Err(format!("{name:?}: expected EIO, ENOSPC, EDQUOT or EROFS")),
    }
}

impl FaultRule {
    fn rule(&self) -> Result<Rule, String> {
        let glob = Pattern::new(&self.glob).map_err(|error| format!("glob {:?}: {error}", self.glob))?;
        let delay = |milliseconds: f64| {
            Duration::try_from_secs_f64(milliseconds / 1e3)
                .map_err(|_| format!("sync_delay_ms {milliseconds}: expected a number of 0 or more"))
        };
        let number = |name: &Option<String>| name.as_deref().map(error_number).transpose();
        if self.sync_error.is_none() && (self.sync_drops || self.times.is_some()) {
            return Err("sync_drops and times go with sync_error".to_owned());
        }
        Ok(Rule {
            glob,
            sync_drops: self.sync_drops,
            times: self.times.map(|times| Arc::new(AtomicU64::new(times))),
            sync_delay: self.sync_delay_ms.map(delay).transpose()?,
            sync_error: number(&self.sync_error)?,
            write_error: number(&self.write_error)?,
        })
    }
}

fn refused(doing: &str, error: i32) -> String {
    match error {
        libc::EALREADY => format!("{doing}: it already is"),
        _ => format!("{doing}: {}", io::Error::from_raw_os_error(error)),
    }
}

fn parse_rules(rules: &[FaultRule]) -> Result<Vec<Rule>, String> {
    rules
        .iter()
        .enumerate()
        .map(|(index, rule)| rule.rule().map_err(|error| format!("rules[{index}]: {error}")))
        .collect()
}

/// A command, and its rules as they were given.
fn parse(line: &str) -> Result<(Command, Value), String> {
    let given: Value =
        serde_json::from_str(line).map_err(|error| format!("expected a JSON object on one line: {error}"))?;
    let rules = given["rules"].clone();
    let command = Command::deserialize(given).map_err(|error| error.to_string())?;
    Ok((command, rules))
}

/// Reads a command and applies its rules to a path, for fuzzing.
#[doc(hidden)]
pub fn try_line(line: &str) -> Result<(), String> {
    match parse(line)?.0 {
        Command::Fault { rules } => {
            let rules = Rules {
                faults: parse_rules(&rules)?,
                ..Rules::default()
            };
            std::hint::black_box(rules.label("data/00000000000000000000.log"));
        }
        Command::Cut {
            survive, keep, seed, ..
        } => drop(survival(survive, keep, seed)?),
        Command::Find { hex } => drop(bytes_of(&hex)?),
        Command::Hold { glob, at, count } => drop(place(glob, &at, count)?),
        Command::Metadata { model } => drop(metadata(&model)?),
        _ => {}
    }
    Ok(())
}

impl Control {
    fn status(&self) -> Map<String, Value> {
        let (on, cuts) = self.disk.power();
        let settings = &self.disk.settings;
        let nanoseconds = |age: Option<Duration>| age.map(|age| age.as_nanos() as u64);
        let (_, limit) = self.disk.space();
        let mut status = fields(json!({
            "power": if on { "on" } else { "off" },
            "mount": self.mount,
            "state": settings.state,
            "metadata": self.disk.metadata(),
            "hold": self.disk.held(),
            "write_back_ns": nanoseconds(settings.write_back),
            "commit_ns": nanoseconds(settings.commit),
            "sync_delay_ns": self.sync_delay.as_nanos() as u64,
            "sync_through": settings.sync_through,
            "limit_bytes": limit,
            "rules": *lock(&self.rules),
            "cuts": cuts,
            "syncs_waiting": self.syncs.waiting(),
        }));
        status.extend(fields(self.disk.size()));
        status.extend(fields(self.disk.unsynced()));
        self.disk.accounts.flush();
        status
    }

    fn cut(&self, survive: Survive, names: bool) -> Answer {
        let cut = self
            .disk
            .cut(survive, names)
            .map_err(|error| refused("cut the power", error))?;
        self.forget(&cut.root_names);
        Ok(fields(&cut))
    }

    /// Makes the kernel forget all names: those in the root, and with them what is below.
    fn forget(&self, root_names: &[OsString]) {
        for name in root_names {
            // One that the kernel does not know is no error.
            let _ = self.notifier.inval_entry(INodeNo(ROOT), name);
        }
        let _ = self.notifier.inval_inode(INodeNo(ROOT), 0, 0);
    }

    fn sync(&self) -> Answer {
        // What was changed through shared mappings is still with the kernel.
        if let Ok(root) = File::open(&self.mount) {
            // SAFETY: a system call on a descriptor that is open, without pointers.
            unsafe { libc::syncfs(root.as_raw_fd()) };
        }
        let (files, bytes) = self
            .disk
            .sync_all()
            .map_err(|error| refused("sync everything", error))?;
        Ok(fields(json!({"files": files, "bytes": bytes})))
    }

    fn faults(&self, rules: &[FaultRule], given: Value) -> Answer {
        self.disk.set_faults(parse_rules(rules)?);
        *lock(&self.rules) = given;
        Ok(fields(json!({"rules": rules.len()})))
    }

    fn obey(&self, line: &str) -> Answer {
        let (command, rules) = parse(line)?;
        match command {
            Command::Status {} => Ok(self.status()),
            Command::Cut {
                survive,
                keep,
                block_bytes,
                seed,
                names,
            } => {
                let survive = survival(survive, keep, seed)?;
                self.disk.set_block_bytes(blocks(block_bytes)?);
                self.cut(survive, matches!(names, Names::All))
            }
            Command::Find { hex } => {
                let found = self.disk.evidence.find(&bytes_of(&hex)?);
                Ok(fields(json!({"found": found})))
            }
            Command::Hold { glob, at, count } => {
                let (place, glob) = place(glob, &at, count)?;
                self.disk.hold_at(place, glob);
                Ok(fields(json!({"hold": self.disk.held()})))
            }
            Command::Release {} => {
                self.disk.release();
                Ok(Map::new())
            }
            Command::Metadata { model } => {
                self.disk
                    .set_metadata(metadata(&model)?)
                    .map_err(|error| refused("change the model of metadata", error))?;
                Ok(fields(json!({"metadata": self.disk.metadata()})))
            }
            Command::PowerOn {} => self
                .disk
                .power_on()
                .map(fields)
                .map_err(|error| refused("switch the power on", error)),
            Command::Sync {} => self.sync(),
            Command::Fault { rules: parsed } => self.faults(&parsed, rules),
            Command::Limit { bytes } => {
                self.disk.set_limit(bytes);
                Ok(fields(json!({"bytes": bytes})))
            }
            Command::Accounts { since } => self
                .disk
                .accounts
                .report(since)
                .ok_or_else(|| format!("since {since}: expected the mark of an earlier answer, or 0")),
            Command::Stop {} => Ok(Map::new()),
        }
    }

    /// Obeys one line. Returns the answer, and whether it is time to stop.
    pub fn answer(&self, line: &str) -> (Map<String, Value>, bool) {
        let mut stops = false;
        let mut answer = match self.obey(line) {
            Ok(answer) => {
                stops = serde_json::from_str::<Command>(line)
                    .is_ok_and(|command| matches!(command, Command::Stop {}));
                let mut answer = answer;
                answer.insert("ok".to_owned(), json!(true));
                answer
            }
            Err(error) => fields(json!({"ok": false, "error": error})),
        };
        answer.insert("monotonic_ns".to_owned(), json!(monotonic_ns()));
        (answer, stops)
    }

    fn serve(&self, stream: &UnixStream) -> io::Result<()> {
        let mut writer = stream;
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        loop {
            line.clear();
            if (&mut reader).take(LINE_BYTES_MAX).read_line(&mut line)? == 0 {
                return Ok(());
            }
            let (answer, stops) = self.answer(line.trim_end());
            writer.write_all(format!("{}\n", Value::Object(answer)).as_bytes())?;
            if stops {
                (self.stop)();
            }
        }
    }
}

/// What a disk writes as a whole.
fn blocks(bytes: Option<u64>) -> Result<u64, String> {
    let bytes = bytes.unwrap_or(SECTOR_BYTES);
    if bytes.is_power_of_two() && (SECTOR_BYTES..=BLOCK_BYTES_MAX).contains(&bytes) {
        return Ok(bytes);
    }
    Err(format!(
        "block_bytes {bytes}: expected a power of two from {SECTOR_BYTES} to {BLOCK_BYTES_MAX}"
    ))
}

fn metadata(model: &str) -> Result<Metadata, String> {
    match model {
        "strict" => Ok(Metadata::Strict),
        "ordered" => Ok(Metadata::Ordered),
        "ext4" => Ok(Metadata::Ext4),
        _ => Err(format!("model {model:?}: expected strict, ordered or ext4")),
    }
}

fn place(glob: String, at: &str, count: u64) -> Result<(Place, Pattern), String> {
    let names: Vec<&str> = Deed::NAMES.iter().map(|(_, name)| *name).collect();
    let deed = Deed::NAMES.iter().find(|(_, name)| *name == at);
    let (deed, _) = deed.ok_or_else(|| format!("at {at:?}: expected one of {}", names.join(", ")))?;
    if count == 0 {
        return Err("count 0: expected 1 or more".to_owned());
    }
    let pattern = Pattern::new(&glob).map_err(|error| format!("glob {glob:?}: {error}"))?;
    let place = Place {
        glob,
        deed: *deed,
        count,
    };
    Ok((place, pattern))
}

/// Bytes to look for; `??` is any.
fn bytes_of(hex: &str) -> Result<Vec<Option<u8>>, String> {
    let wrong = || format!("hex {hex:?}: expected pairs of hexadecimal digits, or ?? for any byte");
    if hex.is_empty() || !hex.is_ascii() || !hex.len().is_multiple_of(2) {
        return Err(wrong());
    }
    (0..hex.len())
        .step_by(2)
        .map(|at| match &hex[at..at + 2] {
            "??" => Ok(None),
            digits => u8::from_str_radix(digits, 16).map(Some).map_err(|_| wrong()),
        })
        .collect()
}

fn survival(name: SurviveName, keep: Option<f64>, seed: u64) -> Result<Survive, String> {
    match (name, keep) {
        (SurviveName::Random | SurviveName::Versions, keep) => {
            let keep = keep.unwrap_or(KEEP_DEFAULT);
            if !(0.0..=1.0).contains(&keep) {
                return Err(format!("keep {keep}: expected a probability from 0 to 1"));
            }
            Ok(match name {
                SurviveName::Random => Survive::Random { keep, seed },
                _ => Survive::Versions { keep, seed },
            })
        }
        (_, Some(_)) => Err("keep: it goes with \"survive\": \"random\" or \"versions\" only".to_owned()),
        (SurviveName::All, None) => Ok(Survive::Everything),
        (SurviveName::Prefix, None) => Ok(Survive::Prefix { seed }),
        (SurviveName::Torn, None) => Ok(Survive::Torn { seed }),
        (SurviveName::None, None) => Ok(Survive::Nothing),
    }
}

/// Takes commands in threads of their own, until the process ends.
///
/// # Errors
/// When no thread could be started.
pub fn listen(listener: UnixListener, control: Arc<Control>) -> io::Result<()> {
    thread::Builder::new()
        .name("control".to_owned())
        .spawn(move || {
            for stream in listener.incoming().flatten() {
                let control = Arc::clone(&control);
                // A client that goes away, or that cannot be served, ends its own connection only.
                let _ = thread::Builder::new()
                    .name("command".to_owned())
                    .spawn(move || control.serve(&stream));
            }
        })
        .map(drop)
}
