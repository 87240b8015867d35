package cores

import (
	"fmt"
	"strings"
	"testing"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/plan"
)

// standIn reads the section cpu of a startup.conf as VPP 26.06 does, and returns the CPUs of main and
// workers. Lists have the kernel's numbers, and a number outside the cpuset is an error. After the word
// relative they are positions in the cpuset, from 0.
func standIn(conf string, granted cpuset.Set) (used cpuset.Set, err error) {
	_, section, found := strings.Cut(conf, "cpu {")
	section, _, closed := strings.Cut(section, "}")
	if !found || !closed {
		return used, fmt.Errorf("no section cpu in %q", conf)
	}
	words := strings.Fields(section)
	relative := false
	for _, w := range words {
		relative = relative || w == "relative" // wherever it stands
	}
	for i := 0; i < len(words); i++ {
		switch word := words[i]; word {
		case "relative":
		case "main-core", "corelist-workers":
			i++
			list, err := cpuset.Parse(words[i])
			if err != nil {
				return used, err
			}
			for cpu := range list.All() {
				if relative {
					if cpu >= granted.Len() {
						return used, fmt.Errorf("%s %d: the cpuset %s has no such place", word, cpu, granted)
					}
					cpu = granted.Slice()[cpu]
				}
				if !granted.Contains(cpu) {
					return used, fmt.Errorf("%s %d: not in the cpuset %s", word, cpu, granted)
				}
				used = used.Union(cpuset.Of(cpu))
			}
		default:
			return used, fmt.Errorf("unknown input %q", word)
		}
	}
	return used, nil
}

// The trap of containers: a list that was right on the host names other CPUs, or none, in a cpuset that does
// not begin at 0. What cores writes is right in both readings.
func TestVPPInCpuset(t *testing.T) {
	if _, err := standIn("cpu { main-core 0 corelist-workers 1-3 }", cpuset.MustParse("4-7")); err == nil {
		t.Error("the stand-in takes CPUs 0-3 in a cpuset of 4-7")
	}
	var cores []cpuset.Set
	for id := range 16 {
		cores = append(cores, cpuset.Of(id))
	}
	for _, c := range []struct{ granted, lane string }{
		{"0-15", "4-7"}, {"4-7", "4-7"}, {"4-7", "5-6"}, {"3,5-9", "5,7,9"}, {"8-15", "15"},
	} {
		granted, own := cpuset.MustParse(c.granted), cpuset.MustParse(c.lane)
		text := write(t, "vpp", Request{Lane: plan.Lane{Name: "a", CPUs: own}, Granted: granted, Cores: cores})
		absolute, places, both := strings.Cut(text, "# cpu {")
		if got, err := standIn(absolute, granted); err != nil || got != own {
			t.Errorf("lane %s in %s: by number %s, %v:\n%s", own, granted, got, err, text)
		}
		if both != (granted.First() != 0) {
			t.Errorf("lane %s in %s: places are written: %t", own, granted, both)
		}
		if !both {
			continue
		}
		if got, err := standIn("cpu {"+places, granted); err != nil || got != own {
			t.Errorf("lane %s in %s: by place %s, %v:\n%s", own, granted, got, err, text)
		}
	}
}
