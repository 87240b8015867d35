package audit

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
)

const kvmGuide = "Documentation/virt/kvm/"

// virtualRules ask about machines in machines: those that this one runs, and the one it runs in.
func virtualRules() []rule {
	return []rule{
		{
			id: "vcpu-pinning", title: "virtual CPUs are not pinned one to one",
			classes: Severities{Fault, Fault, Warn}, needsLanes: true,
			cost:    "the guest's CPU stands still while its vCPU waits for another: milliseconds, which the guest cannot see coming",
			runTime: "virsh vcpupin DOMAIN VCPU CPU, one CPU each; virsh emulatorpin DOMAIN {housekeeping}",
			source:  "libvirt: CPU tuning, vcpupin", check: vcpuPinning,
		},
		{
			id: "emulator-threads", title: "QEMU's own threads may run on the CPUs of its virtual ones",
			classes: Severities{Warn, Fault, Info}, needsLanes: true,
			cost:    "I/O and timers of the emulator preempt the guest for 10 to 500 µs",
			runTime: "virsh emulatorpin DOMAIN {housekeeping}; virsh iothreadadd and iothreadpin for disks",
			source:  "libvirt: CPU tuning, emulatorpin", check: emulatorThreads,
		},
		{
			id: "kvm-parameters", title: "KVM is set up for throughput",
			classes: Severities{Info, Warn, None},
			cost:    "some µs at exits: the clock is synchronised every five minutes, pauses exit, pages are split when they are executed",
			boot:    "kvm.kvmclock_periodic_sync=0 kvm_intel.ple_gap=0 kvm.nx_huge_pages=off kvm.halt_poll_ns=0 (nx_huge_pages=off: only where guests are trusted)",
			source:  kvmGuide + "x86/; " + parameters + ", kvm.nx_huge_pages", check: kvmParameters,
		},
		{
			id: "guest-steal", title: "the hypervisor took CPU time from this machine",
			classes: Severities{Warn, Fault, Info},
			cost:    "each time, the CPU stands still for up to milliseconds; nothing inside the guest mends it",
			runTime: "on the hypervisor: virtual CPUs pinned one to one, its emulator threads elsewhere",
			source:  "proc_stat(5), steal", check: steal,
		},
		{
			id: "guest-idle", title: "an idle CPU of this guest goes back to the hypervisor at once",
			classes: Severities{None, Info, None},
			cost:    "5 to 50 µs at each wake-up of a thread that sleeps",
			runTime: "cpuidle-haltpoll in the guest (modprobe cpuidle_haltpoll force=1), or kvm.halt_poll_ns on the hypervisor",
			source:  kvmGuide + "halt-polling.rst; Documentation/virt/guest-halt-polling.rst", check: guestIdle,
		},
	}
}

// isVCPU: QEMU calls the threads of virtual CPUs "CPU 0/KVM".
func isVCPU(t host.Task) bool {
	return strings.HasPrefix(t.Name, "CPU ") && strings.HasSuffix(t.Name, "/KVM")
}

func (s *subject) vcpus() []host.Task {
	if s.tasks == nil {
		s.lacks("/proc/*/task/*/status")
	}
	return slices.DeleteFunc(slices.Clone(s.tasks), func(t host.Task) bool { return !isVCPU(t) })
}

func vcpuPinning(s *subject) []hit {
	var h hit
	vcpus := s.vcpus()
	for i, t := range vcpus {
		on := t.Allowed.Intersection(s.lane)
		if on.IsEmpty() {
			continue
		}
		text := ""
		if t.Allowed.Len() > 1 {
			text = fmt.Sprintf("%d %s may run on CPUs %s", t.ID, t.Name, t.Allowed)
		}
		for _, other := range vcpus[:i] {
			if t.Allowed.Len() == 1 && other.Allowed == t.Allowed {
				text = fmt.Sprintf("%d %s and %d %s share CPU %s", other.ID, other.Name, t.ID, t.Name, t.Allowed)
			}
		}
		if text != "" {
			h.cpus, h.evidence = h.cpus.Union(on), append(h.evidence, text)
		}
	}
	if len(h.evidence) == 0 {
		return nil
	}
	h.inForce = fmt.Sprintf("%d of %d virtual CPUs", len(h.evidence), len(vcpus))
	return []hit{h}
}

func emulatorThreads(s *subject) []hit {
	machines := map[int]cpuset.Set{} // CPUs of the virtual ones, by process
	for _, t := range s.vcpus() {
		machines[t.Process] = machines[t.Process].Union(t.Allowed.Intersection(s.lane))
	}
	return s.tasksOnLane(func(t host.Task) bool { return t.Allowed.Intersects(machines[t.Process]) && !isVCPU(t) })
}

func kvmParameters(s *subject) []hit {
	if len(s.vcpus()) == 0 {
		return nil
	}
	var h hit
	for _, p := range []string{"kvm/parameters/kvmclock_periodic_sync", "kvm_intel/parameters/ple_gap",
		"kvm/parameters/nx_huge_pages", "kvm/parameters/halt_poll_ns"} {
		if value, ok := s.files["/sys/module/"+p]; ok && value != "N" && value != "0" {
			h.evidence = append(h.evidence, fmt.Sprintf("/sys/module/%s: %s", p, value))
		}
	}
	if len(h.evidence) == 0 {
		return nil
	}
	h.inForce = fmt.Sprintf("%d parameters", len(h.evidence))
	return []hit{h}
}

func steal(s *subject) []hit {
	if s.Kernel.Steal == nil {
		s.lacks("/proc/stat")
		return nil
	}
	if *s.Kernel.Steal == 0 {
		return nil
	}
	taken := time.Duration(*s.Kernel.Steal)
	return []hit{{inForce: fmt.Sprintf("%v since boot, all CPUs together", taken)}}
}

func guestIdle(s *subject) []hit {
	if s.Kernel.Hypervisor == nil || !*s.Kernel.Hypervisor || s.Kernel.IdleDriver == "haltpoll" {
		return nil
	}
	if s.Kernel.IdleDriver == "" {
		s.lacks("/sys/devices/system/cpu/cpuidle/current_driver")
		return nil
	}
	return []hit{{inForce: fmt.Sprintf("idle driver %s, not haltpoll", s.Kernel.IdleDriver)}}
}
