package place_test

import (
	"strings"
	"testing"

	"isolane.dev/isolane/hub/place"
	"isolane.dev/isolane/lane"
)

// A tenant learns nothing about hosts at sites outside its quota; an operator does.
func TestTenantSites(t *testing.T) {
	f := newFleet(t, 6) // two at each of site0, site1, site2
	x := f.index(t)
	for _, row := range []struct {
		where place.Where
		says  string
	}{
		{place.Where{Tenant: []string{"elsewhere"}}, "no host takes it: there is none where it may be"},
		{place.Where{Tenant: []string{"site0"}, Zones: []string{"north"}}, "no host takes it: excluded"},
		{place.Where{Tenant: []string{"site0"}, Sites: []string{"site1"}}, "no host takes it: excluded"},
	} {
		d, err := x.Place(t.Context(), ask("new", 1, lane.Any, ""), row.where, f)
		if err != nil || d.Brief() != row.says {
			t.Errorf("%+v: found %s, %v; expected %s", row.where, d.Brief(), err, row.says)
		}
		if why := d.Why(); !strings.Contains(why, "h0005 (site2): not the tenant's: its site is not among") {
			t.Errorf("%+v: expected all hosts in\n%s", row.where, why)
		}
	}
	if f.asked > 0 {
		t.Errorf("%d hosts were asked", f.asked)
	}
}
