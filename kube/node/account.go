package node

import (
	"context"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/kube/ask"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/solver"
)

// account is the host as it was before the lanes, and what is placed on it for whom.
type account struct {
	host   host.Host
	placed plan.Placement               // the lanes in force, and the answered lanes that are not in force yet
	claims []*resourceapi.ResourceClaim // whose lanes are among the placed
}

// account returns the lanes in force plus those promised to claims, except to the claims of skip. It ignores
// a claim whose status promises what another one has.
func (n *Node) account(l *lanes.Lanes, skip []*resourceapi.ResourceClaim) (account, error) {
	v, err := l.View()
	if err != nil {
		return account{}, err
	}
	a := account{host: v.Host, placed: l.Placement}
	for _, c := range n.nodeClaims() {
		if slices.ContainsFunc(skip, func(s *resourceapi.ResourceClaim) bool { return s.UID == c.UID }) {
			continue
		}
		if len(lanesOf(l, string(c.UID))) == 0 {
			answered, err := ask.Answered(c, n.Name)
			if err != nil || len(answered) == 0 {
				continue
			}
			want, err := ask.Pinned(v.Host, c, n.Name)
			if err != nil {
				continue
			}
			p, err := solver.Solve(v.Host, a.placed, want)
			if err != nil {
				n.Log.Warn("a claim has been promised what it cannot have", "claim", c.Namespace+"/"+c.Name, "err", err)
				continue
			}
			a.placed = p
		}
		a.claims = append(a.claims, c)
	}
	return a, nil
}

// without returns what is placed, without the lanes of a claim.
func (a account) without(c *resourceapi.ResourceClaim) plan.Placement {
	p := a.placed
	p.Lanes = slices.DeleteFunc(slices.Clone(p.Lanes), func(l plan.Lane) bool {
		return ask.Claim(l.Name) == string(c.UID)
	})
	return p
}

// lanesOf returns the names of a claim's lanes in force.
func lanesOf(l *lanes.Lanes, uid string) (names []string) {
	for _, p := range l.Placement.Lanes {
		if ask.Claim(p.Name) == uid {
			names = append(names, p.Name)
		}
	}
	return names
}

// releaseOrphans releases lanes whose claims are gone and in which nothing runs any more. They exist if the
// kubelet gave claims back while the node part was away. n.orphans says whether something still runs in one.
func (n *Node) releaseOrphans(ctx context.Context) error {
	l, err := lanes.Look(n.Lanes)
	if err != nil {
		return err
	}
	n.orphans = false
	mine := n.nodeClaims()
	var gone []string
	for _, p := range l.Placement.Lanes {
		uid := ask.Claim(p.Name)
		n.mu.Lock()
		prepared := n.prepared[uid]
		n.mu.Unlock()
		has := slices.ContainsFunc(mine, func(c *resourceapi.ResourceClaim) bool { return string(c.UID) == uid })
		if uid != "" && !prepared && !has {
			gone = append(gone, p.Name)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	groups, err := l.Groups()
	busy := map[string]bool{} // by claim: one of its lanes has processes
	for _, g := range groups {
		busy[ask.Claim(g.Lane.Name)] = busy[ask.Claim(g.Lane.Name)] || g.Processes > 0
	}
	for _, name := range gone {
		uid := ask.Claim(name)
		n.orphans = n.orphans || busy[uid]
		if err == nil && !busy[uid] {
			n.Log.InfoContext(ctx, "the claim of a lane is gone", "lane", name)
			err = n.release(ctx, uid)
		}
	}
	if err != nil {
		err = fmt.Errorf("lanes of claims that are gone: %w", err)
	}
	return err
}
