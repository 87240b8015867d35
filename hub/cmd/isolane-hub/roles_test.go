package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"isolane.dev/isolane/hub/api"
)

// may says who may do what, as in docs/hub.md. own: in the namespace where the role is bound, or anywhere if
// it is bound for the whole hub. The kind includes a subresource.
func may(role, verb, kind string, own bool) bool {
	reads := slices.Contains([]string{"get", "list", "watch"}, verb)
	kind, sub, _ := strings.Cut(kind, "/")
	isolanes := slices.Contains([]string{"apps", "instances", "hosts", "sites", "tenants", "quotas"}, kind)
	if sub == "scale" {
		return slices.Contains([]string{"get", "update", "patch"}, verb) && kind == "apps" &&
			(role == "operator" || role == "platform-admin" || role == "tenant-admin" && own)
	}
	if sub != "" {
		return role == "host" && own && verb == "update" && sub == "status" && (kind == "hosts" || kind == "instances")
	}
	switch role {
	case "viewer":
		return own && reads && isolanes
	case "tenant-admin":
		return own && (kind == "apps" || kind == "quotas" && reads)
	case "operator":
		return reads && (isolanes || kind == "configmaps" || kind == "leases") || kind == "apps" || kind == "instances"
	case "platform-admin":
		return isolanes && (reads || kind != "quotas") || reads && (kind == "configmaps" || kind == "leases") ||
			kind == "namespaces" && (reads || verb == "create" || verb == "delete") ||
			(kind == "rolebindings" || kind == "clusterrolebindings") && verb != "deletecollection"
	case "host":
		return own && (kind == "instances" && (reads || verb == "patch") || kind == "hosts" && verb == "get" ||
			kind == "leases" && slices.Contains([]string{"get", "create", "update"}, verb))
	}
	return false
}

func roles() []string {
	return []string{"viewer", "tenant-admin", "operator", "platform-admin", "host"}
}

// bindRoles gives each role to somebody: in namespace default, or for the whole hub.
func bindRoles(t *testing.T, core kubernetes.Interface, kind string, name func(role string) string) {
	t.Helper()
	for _, role := range roles() {
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "isolane:" + role}
		subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: kind, Name: name(role)}}
		meta := metav1.ObjectMeta{Name: "test-" + role}
		var err error
		if role == "operator" || role == "platform-admin" {
			_, err = core.RbacV1().ClusterRoleBindings().Create(t.Context(),
				&rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}, metav1.CreateOptions{})
		} else {
			_, err = core.RbacV1().RoleBindings("default").Create(t.Context(),
				&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}, metav1.CreateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// exactly compares what somebody may do, once the binding is effective, with what its role is for: for each
// verb, kind and namespace.
func exactly(t *testing.T, role string, ask func(verb, kind, space string) bool) {
	t.Helper()
	until(t, "the binding counts", func() error {
		if slices.Contains(roles(), role) && !ask("get", map[bool]string{true: "hosts", false: "apps"}[role == "host"], "default") {
			return errors.New(role + " may nothing")
		}
		return nil
	})
	for _, verb := range verbs() {
		for _, kind := range []string{"apps", "apps/scale", "apps/status", "instances", "instances/status", "hosts", "hosts/status", "sites",
			"tenants", "quotas"} {
			for _, space := range []string{"default", "other"} {
				if (kind == "sites" || kind == "tenants") && space == "default" {
					space = "" // cluster-wide: no role in a namespace covers it
				}
				if got, want := ask(verb, kind, space), may(role, verb, kind, space == "default"); got != want {
					t.Errorf("%s may %s %s in %q: %v, expected %v", role, verb, kind, space, got, want)
				}
			}
		}
	}
}

func verbs() []string {
	return []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
}

// resources returns all that the API server has, as kinds by their groups, subresources included.
func resources(t *testing.T, core kubernetes.Interface) map[string][]string {
	t.Helper()
	_, lists, err := core.Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for _, l := range lists {
		of, perr := schema.ParseGroupVersion(l.GroupVersion)
		if perr != nil {
			t.Fatal(perr)
		}
		for _, r := range l.APIResources {
			if !slices.Contains(all[of.Group], r.Name) {
				all[of.Group] = append(all[of.Group], r.Name)
			}
		}
	}
	return all
}

// grants asks the API server whether somebody may do something. The kind includes a subresource.
func grants(t *testing.T, core kubernetes.Interface, user string, groups []string, verb, group, kind, space string) bool {
	t.Helper()
	kind, sub, _ := strings.Cut(kind, "/")
	r, err := core.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: user, Groups: groups, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: space, Verb: verb, Group: group, Resource: kind, Subresource: sub}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Status.Allowed
}

// Each role permits what it is for and no more. The test asks the API server for each verb, everything that it
// has, and each namespace.
func TestRoles(t *testing.T) {
	f := newFleet(t)
	cells := 0
	bindRoles(t, f.core, "User", func(role string) string { return role })
	all := resources(t, f.core)
	for _, role := range append(roles(), "nobody") {
		exactly(t, role, func(verb, kind, space string) bool {
			cells++
			return grants(t, f.core, role, nil, verb, api.Group, kind, space)
		})
		for group, kinds := range all {
			for _, kind := range kinds {
				for _, verb := range verbs() {
					cells++
					want := may(role, verb, kind, true) && (group == api.Group || theirs(kind) == group)
					if got := grants(t, f.core, role, nil, verb, group, kind, "default"); got != want {
						t.Errorf("%s may %s %s of %q: %v, expected %v", role, verb, kind, group, got, want)
					}
				}
			}
		}
	}
	t.Logf("%d cells", cells)
}

// theirs returns the group of a kind that roles name and that is not Isolane's; "none": they name none such.
func theirs(kind string) string {
	switch kind {
	case "configmaps", "namespaces":
		return ""
	case "leases":
		return "coordination.k8s.io"
	case "rolebindings", "clusterrolebindings":
		return rbacv1.GroupName
	}
	return "none"
}

// everythingOf lists all that a joined host may do, as "VERB KIND.GROUP in NAMESPACE", in its own namespace,
// another host's, a tenant's and Kubernetes' own.
func everythingOf(t *testing.T, core kubernetes.Interface, host string) (all []string) {
	t.Helper()
	for group, kinds := range resources(t, core) {
		for _, kind := range kinds {
			for _, space := range []string{api.Namespace(host), api.Namespace("two"), "default", "kube-system", "isolane-hub"} {
				for _, verb := range verbs() {
					if grants(t, core, api.User(host), []string{api.Hosts, "system:authenticated"}, verb, group, kind, space) {
						all = append(all, fmt.Sprintf("%s %s.%s in %s", verb, kind, group, space))
					}
				}
			}
		}
	}
	slices.Sort(all)
	return all
}
