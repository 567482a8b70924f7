//! A description of the machine, without its owner.

use std::fs;

/// The machine of a measurement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// CPUs that this process may use.
    pub cpus: usize,
    /// The processor's name for itself.
    pub processor: String,
    /// Memory in MiB.
    pub memory: u64,
    /// The kernel's release.
    pub kernel: String,
    /// Whether it is a virtual machine.
    pub is_virtual: bool,
}

impl Machine {
    /// This machine. Unknown fields are empty.
    pub fn this() -> Self {
        let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kilobytes = field(&memory, "MemTotal").trim_end_matches(" kB").parse::<u64>().unwrap_or(0);
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        Self {
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            processor: field(&processor, "model name").to_owned(),
            memory: kilobytes >> 10,
            // The rest of the line names the builder.
            kernel: release.split('-').next().unwrap_or_default().to_owned(),
            is_virtual: field(&processor, "flags").split(' ').any(|flag| flag == "hypervisor"),
        }
    }

    /// One sentence.
    pub fn text(&self) -> String {
        let processor = if self.processor.is_empty() { "an unnamed processor" } else { &self.processor };
        let plural = if self.cpus == 1 { "" } else { "s" };
        let below = if self.is_virtual { ", under a hypervisor" } else { "" };
        let memory = self.memory as f64 / 1024.0;
        format!(
            "{} CPU{plural} of {processor}{below}, {memory:.0} GiB of memory, Linux {}",
            self.cpus, self.kernel
        )
    }

    /// The conclusions that this few CPUs do not permit.
    pub fn caveat(&self) -> Option<String> {
        let cpus = self.cpus;
        (cpus < 8).then(|| {
            format!(
                "With {cpus} CPUs at most {cpus} clients run at a time: contention that grows with the number of \
                 CPUs, which is what the study was about (1 to 8 CPUs), does not show here. Whether a scheme's locks \
                 limit it on a large machine cannot be concluded from the throughput measured; which function takes which lock how \
                 often can, because that does not depend on the number of CPUs. With more clients than CPUs a client \
                 may lose its CPU while it holds a lock, which the study's kernels did not allow: longest holds and \
                 waits then are the scheduler's."
            )
        })
    }
}

/// The first `name : value` line's value.
fn field<'a>(text: &'a str, name: &str) -> &'a str {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(found, _)| found.trim() == name).map_or("", |(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_described_without_its_name() {
        let machine = Machine {
            cpus: 2,
            processor: "AMD EPYC".into(),
            memory: 7949,
            kernel: "6.1".into(),
            is_virtual: true,
        };
        assert_eq!(machine.text(), "2 CPUs of AMD EPYC, under a hypervisor, 8 GiB of memory, Linux 6.1");
        assert!(machine.caveat().is_some());
        assert_eq!(Machine { cpus: 64, ..machine }.caveat(), None);
        assert!(Machine::this().cpus > 0);
    }
}
