package lanes

import (
	"bytes"
	"testing"

	"isolane.dev/isolane/enforce"
)

// What was the same for many interrupts or threads is one line, and the lines come in the same order each time.
func TestRecoveredWrite(t *testing.T) {
	r := Recovered{Released: []string{"run-7"}, Undone: []string{"prove"},
		PutBack: []enforce.Drift{{Name: "/a", Expected: "1", Found: "2", Note: "why", Repaired: true}, {Name: "/c", Expected: "3", Found: "4"}},
		Left:    []Left{{Name: "/b", Before: "0", Set: "1", Found: "2"}},
		Adopted: []enforce.Adopted{
			{Kind: enforce.Removed, Name: "/sys/fs/cgroup/isolane-web"},
			{Subject: enforce.Interrupt, IRQ: new(9), Name: "/proc/irq/9/smp_affinity_list", From: "3", To: "0-3"},
			{Subject: enforce.Interrupt, IRQ: new(7), Name: "/proc/irq/7/smp_affinity_list", From: "2", To: "0-3"},
			{Subject: enforce.Interrupt, IRQ: new(8), Name: "/proc/irq/8/smp_affinity_list", From: "2", To: "0-3"},
			{Subject: enforce.Thread, Name: "CPUs of thread 12 (kworker)", From: "0", To: "0-3"},
			{Subject: enforce.Thread, Name: "CPUs of thread 13 (kworker)", From: "0", To: "0-3"},
			{Name: "/proc/sys/x", From: "1"},
		}}
	const want = `lane run-7 is released: the isolane run that made it has ended
undone: prove
lanes: 1 setting put back to what was in force
put back: /a: expected "1", found "2": why
not in force: /c: expected "3", found "4"
left as it is: /b: somebody changed it from "1" to "2" since, it was "0" before
removed: /sys/fs/cgroup/isolane-web
set: /proc/sys/x to nothing, it was 1
set: CPUs of 2 interrupts (7-8) to 0-3, from 2
set: CPUs of 1 interrupt (9) to 0-3, from 3
set: CPUs of 2 kernel threads to 0-3, from 0
`
	for range 20 {
		var b bytes.Buffer
		if r.Write(&b); b.String() != want {
			t.Fatalf("got:\n%s\nwant:\n%s", b.String(), want)
		}
	}
	var b bytes.Buffer
	if (Recovered{}).Write(&b); b.String() != "nothing to recover\n" {
		t.Error(b.String())
	}
}

// What is not as it should be is an error, and nothing else is.
func TestUnsettled(t *testing.T) {
	if err := Unsettled(enforce.Status{Lanes: []enforce.LaneStatus{{Name: "web"}}}); err != nil {
		t.Error(err)
	}
	s := enforce.Status{Drift: make([]enforce.Drift, 2), Unrecorded: []string{"/x"},
		Lanes: []enforce.LaneStatus{{Name: "run-7", Abandoned: true}}}
	const want = "2 settings are not as the lanes want them: isolane apply puts them back; " +
		"the isolane run that made lane run-7 has ended: isolane recover releases it; " +
		"1 cgroup of isolane's without a record of what was before: isolane recover --adopt takes over"
	if err := Unsettled(s); err == nil || err.Error() != want || s.Settled() {
		t.Errorf("%v, want %s", err, want)
	}
	s = enforce.Status{Drift: []enforce.Drift{{Note: "CPU 3 is offline"}}}
	const told = "1 setting is not as the lanes want it: what is to be done is said with it"
	if err := Unsettled(s); err == nil || err.Error() != told {
		t.Errorf("%v, want %s", err, told)
	}
}
