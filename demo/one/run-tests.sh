#!/bin/sh
# Every greeting ends with an exclamation mark.
for file in greetings/*; do
    if grep -q '!$' "$file"; then
        echo "ok      $file"
    else
        echo "broken  $file: \"$(cat "$file")\" does not end with an exclamation mark"
    fi
done >test-report.txt
cat test-report.txt
exit "$(grep -c '^broken' test-report.txt)"
