//! What the machine says about itself.

use std::ffi::CStr;
use std::fs;
use std::thread;

use crate::report::Host;

/// Reads the host's description, and adds to `notes` what a reader of its figures should know.
pub fn describe(notes: &mut Vec<String>) -> Host {
    let cores =
        thread::available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX));
    let (system, release, machine) = kernel();
    let memory_bytes = memory_bytes();
    note_limits(memory_bytes, cores, notes);
    Host {
        hostname: first_line("/proc/sys/kernel/hostname").unwrap_or_else(|| "unknown".into()),
        kernel: format!("{system} {release}"),
        cpu_model: cpu_model(&machine),
        cores,
        memory_bytes,
    }
}

/// Name, release and machine of the kernel.
fn kernel() -> (String, String, String) {
    // SAFETY: utsname is a plain C struct of byte arrays for which all-zero bytes are valid.
    let mut names: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: `names` is valid for writing.
    if unsafe { libc::uname(&mut names) } != 0 {
        return ("unknown".into(), String::new(), "unknown".into());
    }
    let text = |field: &[libc::c_char]| {
        // SAFETY: uname ends each of its fields with a zero byte, and `names` outlives the borrow.
        unsafe { CStr::from_ptr(field.as_ptr()) }
            .to_string_lossy()
            .into_owned()
    };
    (text(&names.sysname), text(&names.release), text(&names.machine))
}

fn first_line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

fn cpu_model(machine: &str) -> String {
    let described = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    field(&described, "model name").map_or_else(|| machine.to_owned(), str::to_owned)
}

fn memory_bytes() -> u64 {
    let described = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kibibytes =
        field(&described, "MemTotal").and_then(|value| value.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.unwrap_or(0) * 1024
}

/// The value of the first `name : value` line of a file under /proc.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

fn note_limits(memory_bytes: u64, cores: u32, notes: &mut Vec<String>) {
    if let Some(limit) = first_line("/sys/fs/cgroup/memory.max").and_then(|value| value.parse::<u64>().ok())
        && limit < memory_bytes
    {
        notes.push(format!(
            "this container may use {} MB of the memory",
            limit / 1_000_000
        ));
    }
    if let Some(source) = first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource")
        && matches!(
            source.as_str(),
            "hpet" | "acpi_pm" | "jiffies" | "refined-jiffies"
        )
    {
        notes.push(format!(
            "the kernel's clock source is {source}, which is slow to read"
        ));
    }
    if let Some(governor) = first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
        && governor != "performance"
    {
        notes.push(format!(
            "the CPU frequency governor is {governor}: figures may change with the clock rate of the cores"
        ));
    }
    let load =
        first_line("/proc/loadavg").and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    if let Some(load) = load
        && load > f64::from(cores) / 2.0
    {
        notes.push(format!(
            "the machine was busy when the probe began (load average {load:.1} on {cores} cores)"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "vendor_id\t: Some\nmodel\t\t: 7\nmodel name\t: Processor: fast @ 3 GHz\n";
        assert_eq!(field(text, "model name"), Some("Processor: fast @ 3 GHz"));
        assert_eq!(field(text, "model"), Some("7"));
        assert_eq!(field(text, "absent"), None);
    }

    #[test]
    fn this_host_has_cores_and_memory() {
        let host = describe(&mut Vec::new());
        assert!(host.cores >= 1 && host.memory_bytes > 0, "{host:?}");
        assert!(host.kernel.starts_with("Linux "), "{host:?}");
        assert!(
            !host.cpu_model.is_empty() && !host.hostname.is_empty(),
            "{host:?}"
        );
    }
}
