package unit

import (
	"testing"

	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/sched"
)

// systemd interprets % and $ in a command, and the program gets what a task sets by itself.
func TestDropIn(t *testing.T) {
	var l lane.Lane
	l.Metadata.Name, l.Spec.Scheduling = "web", lane.Scheduling{Policy: sched.FIFO, Priority: 10}
	const want = `[Service]
ExecStartPre=-+/usr/bin/isolane attach --lane web --cgroup system.slice/a$$b%%c.service
CPUSchedulingPolicy=fifo
CPUSchedulingPriority=10
`
	s := Service{Name: "a$b%c.service", Group: "system.slice/a$b%c.service"}
	if text := s.InLane(l, "-", "/usr/bin/isolane attach --lane web --cgroup", nil); text != want {
		t.Errorf("found\n%s\nexpected\n%s", text, want)
	}
}
