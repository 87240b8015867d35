package desired

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// For a hub that is not trusted, people can read why, and what they can do.
func TestDistrust(t *testing.T) {
	s := State{Hub: Hub{ID: "h", Revision: 7, Mark: "m"}}.clone()
	for says, v := range map[string]View{
		"this is another hub: expected the identity h, found g": {Hub: "g", Revision: 7, Mark: "m"},
		"it was restored, or is a copy":                         {Hub: "h", Revision: 7, Mark: "l"},
		"the hub's store is older":                              {Hub: "h", Revision: 6, Mark: "m"},
	} {
		_, f := s.Take(v, "n")
		if !strings.Contains(f.Regressed, says) || !strings.Contains(f.Regressed, "what runs goes on: isolane-hub rehome") {
			t.Errorf("found %q, expected %q and a remedy", f.Regressed, says)
		}
	}
}

// A hold after a rehome puts off what is declared meanwhile, and the host does it after the hold. What was declared
// before the rehome is not done.
func TestRehomeThenHold(t *testing.T) {
	view := func(generation int64, spec string) View {
		return View{Hub: "h", Mark: "m", Objects: []Object{{UID: "u", Name: "web", Generation: generation, Spec: json.RawMessage(spec)}}}
	}
	s := State{Instances: map[string]Instance{"u": {Name: "web", Generation: 9, Spec: json.RawMessage(`"old"`)}}}.Rehome(view(2, `"before"`))
	s.Hold = &Hold{Left: time.Hour, Reason: "inventory"}
	s, f := s.Take(view(2, `"before"`), "m")
	if spec := string(s.Instances["u"].Spec); !f.Changed || len(f.Differs) != 1 || len(f.Waiting) != 0 || spec != `"old"` {
		t.Errorf("at first: %+v, it runs as %s", f, spec)
	}
	s, f = s.Take(view(3, `"during"`), "m")
	if spec := string(s.Instances["u"].Spec); f.Changed || len(f.Differs) != 0 || len(f.Waiting) != 1 || spec != `"old"` {
		t.Errorf("during the hold: %+v, it runs as %s", f, spec)
	}
	s.Hold = nil
	s, f = s.Take(view(3, `"during"`), "m")
	if spec := string(s.Instances["u"].Spec); !f.Changed || len(f.Differs) != 0 || spec != `"during"` {
		t.Errorf("after it: %+v, it runs as %s", f, spec)
	}
}
