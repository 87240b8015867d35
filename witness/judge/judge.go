// Package judge compares the evidence of a run with its plan.
package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/results"
)

// Expect is what a plan expects of the evidence.
type Expect struct {
	Noisy      bool       // there are neighbours, and they work
	Lane       cpuset.Set // CPUs where only the application belongs; empty without a lane
	Neighbours cpuset.Set // where they may run
	Measured   cpuset.Set // CPUs whose steal counts
	// process that enters the lane to start programs, while none of them measures; 0: none
	Starter      int
	StealPercent float64             // of a measured CPU, that a hypervisor may take; 0: none
	NoisePercent float64             // of one CPU, that the neighbours must have used; 0: 1
	Window       results.Nanoseconds // the base of the percentages; 0: the witness's own
}

func (e Expect) percent(d results.Nanoseconds) float64 {
	return 100 * float64(d) / float64(max(e.Window, 1))
}

// intrusion returns how long other programs together may run on a lane's CPUs in a window before the run is
// void: a thousandth, because a lane must show its P99.9, and at least a millisecond.
func (e Expect) intrusion() results.Nanoseconds {
	return max(e.Window/1000, results.Nanoseconds(time.Millisecond))
}

// Contradictions says what in the evidence contradicts the plan; nothing for a valid run. A thread that never
// ran contradicts nothing. Kernel threads on a lane's CPU are reported as intruders, but are no
// contradictions: a thread that is bound to a CPU cannot be moved while the CPU is online.
func Contradictions(w results.Witness, e Expect) []string {
	if e.Window == 0 {
		e.Window = w.Window
	}
	var why []string
	for _, t := range w.Threads {
		if wrong := t.Seen.Difference(t.Planned); !wrong.IsEmpty() {
			why = append(why, fmt.Sprintf("%s thread %d (%s) ran on CPU %s, planned %s",
				t.Role, t.TID, t.Comm, wrong, orNone(t.Planned)))
		}
	}
	for _, c := range w.Cpusets {
		if c.InForce != c.Planned {
			why = append(why, fmt.Sprintf("cpuset %s is %s in force, planned %s",
				c.Path, orNone(c.InForce), orNone(c.Planned)))
		}
	}
	return slices.Concat(why, noise(w.Neighbours, e), steal(w.CPUs, e), intruders(w.Sources, e))
}

func noise(n results.Neighbours, e Expect) []string {
	if !e.Noisy {
		if n.Alive {
			return []string{"neighbours are alive where quiet was planned"}
		}
		return nil
	}
	var why []string
	least, percent := cmp.Or(e.NoisePercent, 1), e.percent(n.CPUTime)
	switch {
	case !n.Alive:
		why = append(why, "the neighbours are dead")
	case n.CPUTime == 0 || idle(n.BogoPerSec):
		why = append(why, "the neighbours delivered no work")
	case percent < least:
		why = append(why, fmt.Sprintf("the neighbours had %.2f%% of one CPU, expected at least %g%%",
			percent, least))
	}
	if wrong := n.Seen.Difference(e.Neighbours); !wrong.IsEmpty() {
		why = append(why, fmt.Sprintf("the neighbours ran on CPU %s, planned %s", wrong, orNone(e.Neighbours)))
	}
	return why
}

// idle reports whether the neighbours counted their work, and it is zero.
func idle(bogoPerSec map[string]float64) bool {
	for _, rate := range bogoPerSec {
		if rate > 0 {
			return false
		}
	}
	return bogoPerSec != nil
}

// shown is the unit in which the kernel shows steal: 1/USER_HZ, 1/100 s for all programs (proc_stat(5)).
const shown = results.Nanoseconds(1e9 / 100)

// steal allows for that unit: one more may be seen than was taken.
func steal(cpus []results.CPU, e Expect) []string {
	var why []string
	for _, c := range cpus {
		if e.Measured.Contains(c.ID) && e.percent(c.Steal-shown) > e.StealPercent {
			why = append(why, fmt.Sprintf(results.Steal+" %.1f%% on CPU %d, budget %g%%",
				e.percent(c.Steal), c.ID, e.StealPercent))
		}
	}
	return why
}

// intruders returns the tasks on the lane's CPUs that are no kernel threads, and names the costliest. If it
// is unknown how long one ran there, it may have been all its run time.
func intruders(all []results.Source, e Expect) []string {
	var sum, unknown results.Nanoseconds
	var named []string
	for _, s := range all {
		if s.Kind != results.Task || !e.Lane.Contains(s.CPU) || e.Starter > 0 && s.PID == e.Starter {
			continue
		}
		sum, unknown = sum+valueOf(s.Total), unknown+valueOf(s.AtMost)
		switch {
		case len(named) >= 3:
		case s.Total == nil:
			named = append(named, fmt.Sprintf("%s (%d) up to %s on CPU %d", s.Name, s.TID,
				time.Duration(valueOf(s.AtMost)), s.CPU))
		default:
			named = append(named, fmt.Sprintf("%s (%d) %s on CPU %d in %d runs, the longest %s", s.Name, s.TID,
				time.Duration(*s.Total), s.CPU, valueOf(s.Count), time.Duration(valueOf(s.Longest))))
		}
	}
	if sum+unknown <= e.intrusion() {
		return nil
	}
	ran := "ran"
	if sum <= e.intrusion() {
		ran = "may have run"
	}
	return []string{fmt.Sprintf("intruders %s %s on the lane's CPUs, at most %s expected: %s", ran,
		time.Duration(sum+unknown), time.Duration(e.intrusion()), strings.Join(named, "; "))}
}

// orNone prints a set for a sentence.
func orNone(s cpuset.Set) string { return cmp.Or(s.String(), "none") }

// valueOf returns a value; 0 if unknown.
func valueOf[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
