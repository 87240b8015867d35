package testbed

import (
	"errors"
	"slices"
	"testing"

	"isolane.dev/isolane/results"
)

// What neighbours said counts only if the witness saw that they had ended by themselves.
func TestDied(t *testing.T) {
	said := errors.New("exit status 1: stress-ng: unrecognized option '--cpuu'")
	for _, c := range []struct {
		witness results.Witness
		err     error
		want    []string
	}{
		{results.Witness{Source: "ebpf"}, said, []string{"neighbours: " + said.Error()}},
		{results.Witness{Source: "ebpf"}, nil, nil},
		{results.Witness{Source: "ebpf", Neighbours: results.Neighbours{Alive: true}}, said, nil},
		{results.Witness{}, said, nil},
	} {
		run := results.Run{Witness: c.witness}
		if died(&run, c.err); !slices.Equal(run.Void, c.want) {
			t.Errorf("%+v, %v: void %q, want %q", c.witness, c.err, run.Void, c.want)
		}
	}
}
