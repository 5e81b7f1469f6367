#!/bin/sh
# Every greeting in `uses` exists in the tested state of org/one.
while read -r name; do
    if [ -f "../one/greetings/$name" ]; then
        echo "ok      $name"
    else
        echo "broken  $name: org/one has no such greeting"
    fi
done <uses >test-report.txt
cat test-report.txt
exit "$(grep -c '^broken' test-report.txt)"
