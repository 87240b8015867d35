package desired

import (
	"strings"
	"testing"
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
