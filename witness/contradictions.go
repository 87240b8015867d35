package witness

import (
	"fmt"
	"time"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/results"
)

// Expect is what a plan expects of the evidence.
type Expect struct {
	Noisy        bool
	Lane         cpuset.Set          // empty where there is none
	Neighbours   cpuset.Set          // where they may run
	Measured     cpuset.Set          // CPUs whose steal counts
	StealPercent float64             // most of the window that a hypervisor may take
	Window       results.Nanoseconds // length of the window
}

// userIntrusion is how much of a lane's window other programs may take before a run is void: a
// thousandth.
const userIntrusion = 1000

// noiseShare is how much of one CPU's window the neighbours must have had at least: a hundredth.
// Less than that is no noise.
const noiseShare = 100

// Contradictions returns what in the evidence contradicts the plan, in words; none when a run is
// valid. Kernel threads bound to a lane's CPU are reported as intruders, not as contradictions: no
// run-time means can move them.
func Contradictions(w results.Witness, e Expect) []string {
	var why []string
	for _, t := range w.Threads {
		if wrong := t.Seen.Difference(t.Planned); !wrong.IsEmpty() {
			why = append(why, fmt.Sprintf("%s thread %d (%s) ran on CPU %s, planned %s", t.Role, t.TID, t.Comm, wrong, t.Planned))
		}
	}
	for _, c := range w.Cpusets {
		if c.InForce != c.Planned {
			why = append(why, fmt.Sprintf("cpuset %s is %s in force, planned %s", c.Path, c.InForce, c.Planned))
		}
	}
	why = append(why, noiseContradictions(w.Neighbours, e)...)
	for _, c := range w.CPUs {
		if percent := 100 * float64(c.Steal) / float64(max(e.Window, 1)); e.Measured.Contains(c.ID) && percent > e.StealPercent {
			why = append(why, fmt.Sprintf("the hypervisor took %.1f%% of CPU %d, budget %g%%", percent, c.ID, e.StealPercent))
		}
	}
	for _, i := range w.Intruders {
		if !i.Kernel && e.Lane.Contains(i.CPU) && i.Ran > e.Window/userIntrusion {
			why = append(why, fmt.Sprintf("%s (%d) ran %s on the lane's CPU %d", i.Comm, i.TID, time.Duration(i.Ran), i.CPU))
		}
	}
	return why
}

func noiseContradictions(n results.Neighbours, e Expect) []string {
	if !e.Noisy {
		return nil
	}
	var why []string
	if !n.Alive {
		why = append(why, "the neighbours are dead")
	} else if n.CPUTime < e.Window/noiseShare {
		why = append(why, fmt.Sprintf("the neighbours had only %s of CPU time in %s", time.Duration(n.CPUTime), time.Duration(e.Window)))
	}
	if wrong := n.Seen.Difference(e.Neighbours); !wrong.IsEmpty() {
		why = append(why, fmt.Sprintf("the neighbours ran on CPU %s, planned %s", wrong, e.Neighbours))
	}
	return why
}
