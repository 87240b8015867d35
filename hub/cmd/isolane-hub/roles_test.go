package main

import (
	"errors"
	"slices"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"isolane.dev/isolane/hub/api"
)

// may says who may do what, as in docs/hub.md. own: in the namespace where the role is bound, or anywhere if
// it is bound for the whole hub.
func may(role, verb, kind string, own bool) bool {
	reads := slices.Contains([]string{"get", "list", "watch"}, verb)
	switch role {
	case "viewer":
		return own && reads
	case "tenant-admin":
		return own && (kind == "apps" || kind == "quotas" && reads)
	case "operator":
		return reads || slices.Contains([]string{"apps", "instances"}, kind)
	case "platform-admin":
		return reads || kind != "quotas"
	case "host":
		return own && (kind == "instances" && (reads || verb == "patch") || kind == "hosts" && verb == "get")
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
	for _, verb := range []string{"get", "list", "watch", "create", "update", "patch", "delete"} {
		for _, kind := range []string{"apps", "instances", "hosts", "sites", "tenants", "quotas"} {
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

// Each role permits what it is for and no more. The test asks the API server for each verb, kind and
// namespace.
func TestRoles(t *testing.T) {
	f := newFleet(t)
	cells := 0
	bindRoles(t, f.core, "User", func(role string) string { return role })
	for _, role := range append(roles(), "nobody") {
		exactly(t, role, func(verb, kind, space string) bool {
			r, err := f.core.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
				Spec: authorizationv1.SubjectAccessReviewSpec{User: role, ResourceAttributes: &authorizationv1.ResourceAttributes{
					Namespace: space, Verb: verb, Group: api.Group, Resource: kind}}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			cells++
			return r.Status.Allowed
		})
	}
	for _, role := range []string{"viewer", "tenant-admin", "operator", "host"} { // nobody may give themselves rights, or read secrets
		for _, other := range []authorizationv1.ResourceAttributes{
			{Verb: "create", Group: rbacv1.GroupName, Resource: "rolebindings", Namespace: "default"},
			{Verb: "get", Resource: "secrets", Namespace: "kube-system"},
			{Verb: "get", Resource: "configmaps", Namespace: "isolane-hub"}} {
			r, err := f.core.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
				Spec: authorizationv1.SubjectAccessReviewSpec{User: role, ResourceAttributes: &other}}, metav1.CreateOptions{})
			if want := role == "operator" && other.Resource == "configmaps"; err != nil || r.Status.Allowed != want {
				t.Errorf("%s may %s %s: %v, %v; expected %v", role, other.Verb, other.Resource, r.Status.Allowed, err, want)
			}
		}
	}
	t.Logf("%d cells", cells)
}
