//! The kernel's accounts: what each CPU did, and how much of the CPU this process may use.

use std::path::{Path, PathBuf};

/// What a CPU has done since the machine was started, in nanoseconds. The kernel tells it in ticks, of 10 ms as a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Nothing to do, or waiting for a disk.
    pub idle_ns: i64,
    /// The host gave it to somebody else.
    pub steal_ns: i64,
    /// Interrupts' deferred work.
    pub softirq_ns: i64,
}

impl Account {
    /// What was added since an earlier one. A host that moves a machine may set the accounts back: then nothing.
    pub fn since(self, earlier: Account) -> Account {
        Account {
            idle_ns: (self.idle_ns - earlier.idle_ns).max(0),
            steal_ns: (self.steal_ns - earlier.steal_ns).max(0),
            softirq_ns: (self.softirq_ns - earlier.softirq_ns).max(0),
        }
    }

    /// The utilisation over `wall_ns`, of which this is the account: the share of the time that the CPU had in which it was busy.
    pub fn busy(self, wall_ns: i64) -> f64 {
        let had_ns = wall_ns - self.steal_ns;
        if had_ns <= 0 {
            return 1.0;
        }
        (1.0 - self.idle_ns as f64 / had_ns as f64).clamp(0.0, 1.0)
    }
}

/// The accounts of these CPUs, in their order, from the text of `/proc/stat`; zeros for a CPU that is not there.
pub fn parse(text: &str, cpus: &[usize], tick_ns: i64) -> Vec<Account> {
    let mut accounts = vec![Account::default(); cpus.len()];
    for line in text.lines().take_while(|line| line.starts_with("cpu")) {
        let mut fields = line.split_ascii_whitespace();
        let number = fields
            .next()
            .and_then(|name| name.strip_prefix("cpu")?.parse().ok());
        let Some(at) = number.and_then(|number: usize| cpus.iter().position(|&cpu| cpu == number)) else {
            continue;
        };
        let ticks: Vec<i64> = fields.map(|field| field.parse().unwrap_or(0)).collect();
        let of = |place: usize| ticks.get(place).copied().unwrap_or(0) * tick_ns;
        accounts[at] = Account {
            idle_ns: of(3) + of(4),
            softirq_ns: of(6),
            steal_ns: of(7),
        };
    }
    accounts
}

/// Length of a tick of the accounts.
pub fn tick_ns() -> i64 {
    // SAFETY: a plain system call that takes no pointers.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    1_000_000_000 / per_second.max(1)
}

/// The control groups of the process that may say something of its CPUs, each before those above it. `cgroups` is the text of `/proc/self/cgroup`, `root` where the
/// hierarchies are mounted.
fn groups(cgroups: &str, root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for line in cgroups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let mounts: &[&str] = match controllers {
            "" => &["", "unified"],
            _ if controllers.split(',').any(|name| name == "cpu") => &["cpu", "cpu,cpuacct"],
            _ => continue,
        };
        for mount in mounts {
            let top = root.join(mount);
            let group = top.join(path.trim_start_matches('/'));
            // In a container the path may be the host's, and what is mounted only the group itself.
            found.extend(
                group
                    .ancestors()
                    .take_while(|at| at.starts_with(&top))
                    .map(Path::to_path_buf),
            );
        }
    }
    found
}

/// A quota that may keep the process from using `cpus` CPUs: of how many, and which file says so. `cgroups` and `root`: of `groups`. The worker's own groups and
/// all above them are looked at.
pub fn quota(cgroups: &str, root: &Path, cpus: usize) -> Option<(f64, PathBuf)> {
    groups(cgroups, root).into_iter().find_map(|directory| {
        let (share, file) = group_quota(&directory)?;
        (share < cpus as f64).then(|| (share, directory.join(file)))
    })
}

/// The file by which the process's group gives real-time threads no time (kernels with RT_GROUP_SCHED): there no right of the process is enough.
/// `cgroups` and `root`: of `groups`.
pub fn no_real_time(cgroups: &str, root: &Path) -> Option<PathBuf> {
    // Of the group itself, the first that tells; no group has less than one below it.
    groups(cgroups, root).into_iter().find_map(|directory| {
        let file = directory.join("cpu.rt_runtime_us");
        let runtime: i64 = std::fs::read_to_string(&file).ok()?.trim().parse().ok()?;
        Some((runtime == 0).then_some(file))
    })?
}

/// How many CPUs a group may use, and which file says so.
fn group_quota(directory: &Path) -> Option<(f64, &'static str)> {
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|number| *number > 0.0);
    if let Ok(text) = std::fs::read_to_string(directory.join("cpu.max")) {
        let (quota, period) = text.trim().split_once(' ')?;
        return Some((number(quota)? / number(period)?, "cpu.max"));
    }
    let quota = std::fs::read_to_string(directory.join("cpu.cfs_quota_us")).ok()?;
    let period = std::fs::read_to_string(directory.join("cpu.cfs_period_us")).ok()?;
    Some((number(&quota)? / number(&period)?, "cpu.cfs_quota_us"))
}

/// Whether the kernel stops real-time threads after so little time that the probes would be stopped with them: a sentence.
/// `runtime_us` and `period_us` are those of `/proc/sys/kernel/sched_rt_*`.
pub fn throttle(runtime_us: &str, period_us: &str) -> Option<String> {
    let runtime: i64 = runtime_us.trim().parse().ok()?;
    let period: i64 = period_us.trim().parse().ok()?;
    (runtime >= 0 && runtime * 2 < period).then(|| {
        format!(
            "the kernel stops real-time threads after {runtime} of each {period} us, and the probes with them: \
             set kernel.sched_rt_runtime_us to at least half of kernel.sched_rt_period_us, or to -1"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_those_of_the_cpus_asked_for() {
        let text = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 10 0 20 300 4 0 5 6 0 0\ncpu10 1 0 0 7 0 0 0 8\nintr 5\ncpu3 1 1 1 1\n";
        let accounts = parse(text, &[10, 0, 3], 10);
        assert_eq!(
            accounts[0],
            Account {
                idle_ns: 70,
                steal_ns: 80,
                softirq_ns: 0
            }
        );
        assert_eq!(
            accounts[1],
            Account {
                idle_ns: 3040,
                steal_ns: 60,
                softirq_ns: 50
            }
        );
        assert_eq!(accounts[2], Account::default());
    }

    #[test]
    fn utilisation_is_of_the_time_that_the_cpu_had() {
        let account = Account {
            idle_ns: 30,
            steal_ns: 40,
            softirq_ns: 0,
        };
        assert_eq!(account.busy(100), 0.5);
        assert_eq!(account.busy(40), 1.0);
        assert_eq!(account.busy(20), 1.0);
        assert_eq!(Account::default().since(account), Account::default());
    }

    #[test]
    fn a_quota_of_the_group_or_of_one_above_it_is_found() {
        let root = std::env::temp_dir().join(format!("gauge-quota-{}", std::process::id()));
        let group = root.join("a/b/c");
        std::fs::create_dir_all(&group).unwrap();
        let ask = |cpus| quota("0::/a/b/c\n", &root, cpus);
        std::fs::write(group.join("cpu.max"), "max 100000\n").unwrap();
        assert_eq!(ask(2), None);
        std::fs::write(root.join("a/cpu.max"), "150000 100000\n").unwrap();
        assert_eq!(ask(2), Some((1.5, root.join("a/cpu.max"))));
        assert_eq!(ask(1), None, "it cannot use more than it may");
        let old = root.join("cpu/x");
        std::fs::create_dir_all(&old).unwrap();
        std::fs::write(old.join("cpu.cfs_quota_us"), "50000\n").unwrap();
        std::fs::write(old.join("cpu.cfs_period_us"), "100000\n").unwrap();
        assert_eq!(
            quota("3:cpu,cpuacct:/x\n2:memory:/a\n", &root, 1),
            Some((0.5, old.join("cpu.cfs_quota_us")))
        );
        std::fs::write(old.join("cpu.cfs_quota_us"), "-1\n").unwrap();
        assert_eq!(quota("3:cpu:/x\n", &root, 1), None);
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_group_without_real_time_is_found() {
        let root = std::env::temp_dir().join(format!("gauge-real-time-{}", std::process::id()));
        let group = root.join("cpu/x");
        std::fs::create_dir_all(&group).unwrap();
        let ask = || no_real_time("3:cpu,cpuacct:/x\n0::/\n", &root);
        assert_eq!(ask(), None, "a kernel that does not divide it");
        std::fs::write(root.join("cpu/cpu.rt_runtime_us"), "950000\n").unwrap();
        std::fs::write(group.join("cpu.rt_runtime_us"), "0\n").unwrap();
        assert_eq!(ask(), Some(group.join("cpu.rt_runtime_us")));
        std::fs::write(group.join("cpu.rt_runtime_us"), "10000\n").unwrap();
        assert_eq!(ask(), None);
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_kernel_that_stops_real_time_threads_early_is_told_of() {
        assert_eq!(throttle("950000\n", "1000000\n"), None);
        assert_eq!(throttle("-1", "1000000"), None);
        assert!(throttle("0", "1000000").is_some());
        assert!(
            throttle("100000", "1000000")
                .unwrap()
                .contains("100000 of each 1000000 us")
        );
    }
}
